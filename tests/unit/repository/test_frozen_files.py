"""From 0.1.0 on, what has made a database somewhere is never edited."""

import hashlib
from pathlib import Path

import pytest

from memory_recall.schema.revisions import HEAD_REVISION

ROOT = Path(__file__).parents[3]
LINES = [line.split() for line in (ROOT / "migrations" / "frozen.sha256").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("digest", "path"), LINES, ids=[path for _, path in LINES])
def test_a_frozen_file_is_what_it_was(digest: str, path: str) -> None:
    """A change to the schema is a new revision: a database that ran this one would never get the change."""
    assert hashlib.sha256((ROOT / path).read_bytes()).hexdigest() == digest


def test_the_frozen_revisions_are_the_first_ones_and_the_last_file_is_head() -> None:
    """Revisions between two releases are frozen by the release, so they come last."""
    revisions = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "migrations" / "versions").glob("*.py"))
    frozen = [path for _, path in LINES if path.startswith("migrations/versions/")]
    assert frozen
    assert revisions[: len(frozen)] == frozen
    assert Path(revisions[-1]).name.startswith(f"{HEAD_REVISION}_")
