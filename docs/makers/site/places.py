"""Converts between the paths of files in the repository and their places on the site.

Documents link to one another by their paths in the repository, so that the links work wherever the repository is
shown. On the site, `docs/` is the root; some documents lie outside of it and become pages as well.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]

# Documents outside docs/, by their place on the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "recall/README.md": "library.md",
    "operator/README.md": "operator-package.md",
    "embedder-service/README.md": "embedder-package.md",
    "devcluster/README.md": "devcluster-package.md",
    "terraform/modules/memory-operator/README.md": "terraform-memory-operator.md",
    "terraform/modules/memory-index/README.md": "terraform-memory-index.md",
    "benchmarks/README.md": "benchmarks.md",
}
# Folders whose pages have a list of their own on the site.
FOLDERS = {"docs/adr": "adr/index.md", "docs/reference": "reference/index.md"}

_SOURCES = {place: source for source, place in PAGES.items()}
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)")
_FENCE = re.compile(r"^( *```.*?^ *```)", re.MULTILINE | re.DOTALL)


def source(page: str) -> str:
    """Return the path in the repository of a page of the site."""
    return _SOURCES.get(page, f"docs/{page}")


def place(path: str) -> str | None:
    """Return the place on the site of a path of the repository; None for a folder that is no page."""
    path = path.rstrip("/")
    if path in PAGES:
        return PAGES[path]
    if path in FOLDERS:
        return FOLDERS[path]
    if (REPOSITORY / path).is_dir():
        readme = posixpath.join(path, "README.md")
        return (
            place(readme) if readme in PAGES or (path.startswith("docs/") and (REPOSITORY / readme).exists()) else None
        )
    return path.removeprefix("docs/")


def linked_files(page: str, text: str) -> Iterator[str]:
    """Yield the repository paths of the files outside `docs/` that a page links to, without those that are pages."""
    for part in _FENCE.split(text)[::2]:
        for link in _LINK.finditer(part):
            path = _path(page, link["target"])
            if path and not path.startswith("docs/") and path not in PAGES and (REPOSITORY / path).is_file():
                yield path


def with_links_of_the_site(page: str, text: str) -> str:
    """Return a page's text with links to places on the site; a link to a folder without a page becomes plain text."""
    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(lambda link: _rewritten(page, link), part) for part in parts[::2]]
    return "".join(parts)


def _path(page: str, target: str) -> str | None:
    """Return the repository path that a link leads to, without its anchor; None for a URL or an anchor alone."""
    bare = target.partition("#")[0]
    if not bare or re.match(r"[a-z]+:", bare):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(source(page)), bare))


def _rewritten(page: str, link: re.Match[str]) -> str:
    path = _path(page, link["target"])
    if path is None:
        return link[0]
    found = place(path)
    if found is None:
        return link["text"]
    anchor = "#" + link["target"].partition("#")[2] if "#" in link["target"] else ""
    relative = posixpath.relpath(found, posixpath.dirname(page) or ".")
    return f"{link['image']}[{link['text']}]({relative}{anchor})"
