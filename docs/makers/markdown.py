"""Writes the Markdown of the reference pages: tables, wrapped paragraphs, and escaped text."""

import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 120  # the longest line of a document
_CODE = re.compile(r"(`[^`]*`)")
_ACTIVE = re.compile(r"([<>*\[\]])")
_ENTITIES = {"<": "&lt;", ">": "&gt;"}


def code(text: object) -> str:
    """Return the text as inline code, or an empty text if it is empty."""
    return f"`{text}`" if str(text) else ""


def plain(text: str) -> str:
    """Return the text with all characters escaped that Markdown or HTML would interpret, except in code."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if index % 2 else _ACTIVE.sub(_escaped, part) for index, part in enumerate(parts))


def _escaped(found: re.Match[str]) -> str:
    return _ENTITIES.get(found[0], f"\\{found[0]}")


def paragraph(text: str, indent: str = "") -> str:
    """Wrap a text at the width of a document; lines after the first begin with `indent`."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def bullet(text: str) -> str:
    """Return one item of a list."""
    return paragraph(f"- {text}", indent="  ")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a cell's line breaks become spaces, and its bars are escaped."""
    lines = [_row(heads), "|" + "---|" * len(heads)]
    return "\n".join([*lines, *(_row(row) for row in rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def document(*blocks: str) -> str:
    """Join blocks by empty lines into a page."""
    return "\n\n".join(block.strip("\n") for block in blocks if block.strip()) + "\n"
