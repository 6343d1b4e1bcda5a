"""Removes from texts of others what a terminal, a log or a dashboard would obey instead of showing it.

A stored memory, the answer of a server or the name of an object may hold control characters. An escape sequence writes
the clipboard, changes the title or clears the screen, a line break forges a line of a log, and a bidirectional control
shows a line in another order than it is stored in. JSON for programs keeps what it says: it is only escaped.
"""

import re

_SHOWN_INSTEAD = "\N{REPLACEMENT CHARACTER}"
# Tabs and line breaks are dealt with apart. Joiners stay, since emoji and several scripts are written with them.
_OBEYED = re.compile(
    "["
    "\x00-\x08\x0e-\x1f"  # control characters of ASCII, except white space
    "\x7f-\x84\x86-\x9f"  # delete, and the control characters of ISO 8859
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the order in which characters are shown
    "\ud800-\udfff"  # halves of characters, which no terminal can be sent
    "\ufff9-\ufffb\U000e0000-\U000e007f"  # annotations and tags, which are not shown at all
    "]"
)
_JSON_BREAK = re.compile("[\x85\u2028\u2029]")  # JSON escapes the other ones by itself
_LINE_BREAK = re.compile("\r\n|[\n\v\f\r\x85\u2028\u2029]")


def visible_text(text: str) -> str:
    """Return a text of several lines, with U+FFFD in place of each character that would be obeyed.

    Line breaks of all kinds become line feeds. Tabs stay.
    """
    return _OBEYED.sub(_SHOWN_INSTEAD, _LINE_BREAK.sub("\n", text))


def visible_line(text: str) -> str:
    """Return a text as one line: as `visible_text` does, with a space in place of each line break and tab."""
    return visible_text(text).replace("\n", " ").replace("\t", " ")


def visible_json(line: str) -> str:
    """Return a line of JSON that means the same, in which all that would be obeyed is escaped."""
    return _OBEYED.sub(_escaped, _JSON_BREAK.sub(_escaped, line))


def _escaped(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
