"""Makes the navigation, and an overview page for each section that lists its pages with their first sentences."""

import posixpath
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from docs.makers.markdown import bullet, document

INTRODUCTIONS = {
    "Start": "See it work, install it, and recall from your own API.",
    "Use": "How memories are found, how texts become vectors, and how one model takes another's place.",
    "Operate": "What is configured, what the operator does with it, and how it is kept running.",
    "Reference": "Every field, value, command, request, metric, setting and reason, as the code itself has them.",
    "Understand": "How the parts work together, why they are as they are, and who may read what.",
    "Contribute": "How the project is built, tested and changed.",
    "Runbooks": "What to do, step by step, when something is to be done or has gone wrong.",
    "Decisions": "Each record says what was decided, why, and what it costs.",
}

Entry = str | dict[str, "str | list[Entry]"]
_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)


def expanded(entries: Sequence[Entry], documents: Path) -> list[Entry]:
    """Return the entries of a navigation; each FOLDER/* is replaced by the pages of the folder that have no entry.

    A section whose folders are empty is left out.
    """
    found: list[Entry] = []
    for entry in entries:
        if isinstance(entry, str):
            found += _pages(entry, entries, documents)
            continue
        for title, inner in entry.items():
            if isinstance(inner, str):
                found.append({title: inner})
                continue
            others = expanded(inner, documents)[1:]
            if others:
                found.append({title: [inner[0], *others]})
    return found


def _pages(entry: str, beside: Sequence[Entry], documents: Path) -> list[str]:
    if not entry.endswith("/*"):
        return [entry]
    pages = sorted(path.relative_to(documents).as_posix() for path in documents.glob(f"{entry}.md"))
    return [page for page in pages if page not in beside]


def overview(title: str, page: str, entries: Sequence[Entry], text_of: Callable[[str], str]) -> str:
    """Return the first page of a section.

    Args:
        title: Name of the section.
        page: Place of this page on the site.
        entries: The entries of the section in the navigation, without this page.
        text_of: Returns the Markdown of a page by its place.
    """
    lines = [_line(entry, page, text_of) for entry in entries]
    return document(f"# {title}", INTRODUCTIONS[title], "\n".join(lines))


def _line(entry: Entry, page: str, text_of: Callable[[str], str]) -> str:
    if isinstance(entry, str):
        return bullet(f"[{heading(text_of(entry))}]({_relative(entry, page)}){_after(first_sentence(text_of(entry)))}")
    (title, inner), *_ = entry.items()
    if isinstance(inner, str):
        return bullet(f"[{title}]({_relative(inner, page)}){_after(first_sentence(text_of(inner)))}")
    first = next(place for place in inner if isinstance(place, str))
    return bullet(f"[{title}]({_relative(first, page)}){_after(INTRODUCTIONS[title])}")


def _relative(place: str, page: str) -> str:
    return posixpath.relpath(place, posixpath.dirname(page) or ".")


def _after(sentence: str) -> str:
    return f": {sentence}" if sentence else ""


def heading(text: str) -> str:
    """Return the first heading of a page."""
    found = _HEADING.search(text)
    return found[1] if found else ""


def first_sentence(text: str) -> str:
    """Return the first sentence of a page without links; empty if the page does not begin with a paragraph."""
    blocks = _HEADING.sub("", text, count=1).strip().split("\n\n")
    paragraph = " ".join(blocks[0].split())
    if not paragraph[:1].isalpha() and paragraph[:1] != "`":
        return ""
    bare = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", bare, maxsplit=1)[0]
