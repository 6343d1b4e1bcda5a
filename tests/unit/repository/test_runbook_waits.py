"""What the runbooks check of a healthy object holds at some moment, not at every one, so they wait for it."""

import re

from tests.support.documents import ROOT

PENDING = re.compile(r"^.*rows\.pending.*$", re.MULTILINE)


def test_a_runbook_waits_until_no_row_is_pending_and_does_not_look_once() -> None:
    """While others write, an object is Ready with up to 199 pending rows, and a single look would call it broken."""
    pages = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
    lines = [line for page in pages for line in PENDING.findall(page.read_text(encoding="utf-8"))]
    assert len(lines) >= 5
    assert [line for line in lines if not re.search(r" wait .*--for=jsonpath=.* --timeout=\d+m$", line)] == []
