"""Indents the contents of list items by four spaces, as Python-Markdown demands.

The documents themselves indent by the width of the item's marker, two or three spaces, as CommonMark does.
"""

import re

_ITEM = re.compile(r"( *)([-*+]|\d+\.) +(?=\S)")
_STEP = 4


def with_wide_indents(text: str) -> str:
    """Return a text in which each level of a list is four spaces wide."""
    levels: list[int] = []  # for each open list, the column at which the content of its items begins
    fence: int | None = None  # the column of the open fence
    lines = []
    for line in text.splitlines():
        column = len(line) - len(line.lstrip())
        if not line.strip():
            lines.append("")
            continue
        if fence is None:
            while levels and column < levels[-1]:
                levels.pop()
        begun = levels[-1] if levels else 0
        lines.append(" " * (_STEP * len(levels) + max(column - begun, 0)) + line.lstrip())
        if line.lstrip().startswith("```"):
            fence = column if fence is None else None
        elif fence is None and (item := _ITEM.match(line)):
            levels.append(len(item[0]))
    return "\n".join(lines) + "\n"
