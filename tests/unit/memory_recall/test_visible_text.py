"""Texts of others do not drive a terminal and do not forge lines of a log."""

import io
import json
import logging
import sys
from typing import Literal

import pytest
import structlog

from memory_recall import logs
from memory_recall.cli.output import emit, json_line, report_failure
from memory_recall.errors import DatabaseRejected
from memory_recall.visible_text import visible_line, visible_text

OBEYED = [
    chr(code)
    for code in (
        *range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A),
        0xD800, 0xDFFF, 0xFFF9, 0xE0001, 0xE007F,
    )
    if chr(code) not in "\n\t"
]  # fmt: skip


@pytest.mark.parametrize("character", OBEYED, ids=lambda character: f"U+{ord(character):04X}")
@pytest.mark.finding("security S8")
@pytest.mark.finding("security L1")
def test_no_control_character_is_left(character: str) -> None:
    assert character not in visible_text(f"a{character}b")
    assert character not in visible_line(f"a{character}b")


@pytest.mark.parametrize(
    "text", ["", "Обяд в 12:30", "漢字かな", "👩‍👩‍👧 ❤️", "می‌خواهم", "a b\u00adc", "[red]x[/red] \\"]
)
def test_what_is_only_shown_stays_as_it_is(text: str) -> None:
    assert visible_text(text) == visible_line(text) == text


def test_line_breaks_and_tabs_stay_in_a_text_and_become_spaces_in_a_line() -> None:
    assert visible_text("a\r\nb\u2028c\td\x85e") == "a\nb\nc\td\ne"
    assert visible_line("a\r\nb\u2028c\td\x85e") == "a b c d e"


@pytest.mark.parametrize("fmt", ["console", "json"])
@pytest.mark.finding("security L1")
def test_a_log_shows_no_control_character_of_others(
    fmt: Literal["json", "console"], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, hostile = io.StringIO(), "x\x1b]52;c;eA==\x07\x9b2J\u202e\nforged line"
    monkeypatch.setattr(sys, "stderr", stream)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logs.configure(fmt=fmt, level="info")
        structlog.get_logger("memory_recall.test").warning("of_ours", message=hostile, listed=[hostile])
        logging.getLogger("of.a.library").error("said %s", hostile)
        logging.getLogger("of.a.library").error("failed", exc_info=ValueError(hostile))
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        structlog.reset_defaults()
    written = stream.getvalue()
    assert not set(written) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert not any(line.startswith("forged") for line in written.splitlines()[:3])


@pytest.mark.parametrize("character", [one for one in OBEYED if not "\ud800" <= one <= "\udfff"], ids=ascii)
@pytest.mark.finding("security S8")
def test_json_says_the_same_without_what_would_be_obeyed(character: str) -> None:
    written = json_line({"text": f"a{character}b"})
    assert json.loads(written) == {"text": f"a{character}b"}
    assert written.isprintable() or written[:-1].isprintable()


@pytest.mark.parametrize("version", ["18[/x]", "18[bold]", "18\x1b[2J"])
@pytest.mark.finding("security S8")
def test_a_servers_text_is_not_read_as_markup(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    emit({version: version}, as_json=False)
    report_failure(DatabaseRejected(version, version), as_json=False)
    shown = capsys.readouterr()
    assert shown.out.split() == [visible_text(version)] * 2
    assert shown.err.split() == ["DatabaseRejected:", *[visible_text(version)] * 2]
