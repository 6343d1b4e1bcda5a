"""The documentation site is built without a warning, and a reader finds every page and asks nobody else."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import ClassVar
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from docs.makers.site import lists, overviews, places
from tests.unit.repository.test_layout import ROOT, tracked

FRONT = "http://site/"


@dataclass
class Reader(HTMLParser):
    """What a reader of a built page can click, and what a browser loads by itself.

    The side bar is left out, since most of it is hidden; what counts is the text of the page and the tabs above it.
    """

    links: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    anchors: set[str] = field(default_factory=set)
    inside: int = 0
    LOADED: ClassVar = {
        "script": "src",
        "img": "src",
        "link": "href",
        "iframe": "src",
        "source": "src",
        "object": "data",
    }

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.add(values.get("id", ""))
        if tag == "article" or "md-tabs" in values.get("class", "").split():
            self.inside += 1
        if self.inside and tag == "a" and "href" in values:
            self.links.add(values["href"])
        if tag in self.LOADED and values.get("rel") not in {"canonical", "next", "prev"}:
            self.loaded.add(values.get(self.LOADED[tag], ""))

    def handle_endtag(self, tag: str) -> None:
        if self.inside and tag in {"article", "nav"}:
            self.inside -= 1


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make check` builds it, where a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Reader]:
    """Every page of the site by its address."""
    found = {}
    for path in site.rglob("index.html"):
        reader = Reader()
        reader.feed(path.read_text(encoding="utf-8"))
        place = path.parent.relative_to(site).as_posix()
        found[FRONT if place == "." else f"{FRONT}{place}/"] = reader
    return found


def targets(address: str, reader: Reader) -> Iterator[str]:
    """The pages to which the links of a page lead."""
    for link in reader.links:
        yield urljoin(address, link).partition("#")[0]


def test_every_page_is_two_clicks_from_the_front(pages: dict[str, Reader]) -> None:
    """A reader gets from the front page to every other by its text and the tabs, with two clicks at most."""
    first = {FRONT, *targets(FRONT, pages[FRONT])}
    second = {target for page in first & set(pages) for target in targets(page, pages[page])}
    assert len(pages) > 40
    assert set(pages) - first - second == set()


def test_every_link_leads_somewhere(site: Path, pages: dict[str, Reader]) -> None:
    """A link within the site leads to a page or file that is there, and its anchor to a place on that page."""
    broken = []
    for address, reader in pages.items():
        for link in reader.links:
            target, _, anchor = urljoin(address, link).partition("#")
            if not target.startswith(FRONT):
                continue
            if target in pages:
                broken += [f"{address}: {link}"] if anchor and unquote(anchor) not in pages[target].anchors else []
            elif not (site / unquote(urlsplit(target).path).lstrip("/")).is_file():
                broken.append(f"{address}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[str, Reader]) -> None:
    """Whoever reads a page tells no other server of it: scripts, styles, fonts and pictures are the site's own."""
    for address, reader in pages.items():
        assert {link for link in reader.loaded if urljoin(address, link).partition(FRONT)[0]} == set()
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert [found for style in styles for found in re.findall(r"url\(['\"]?(?:https?:)?//[^)]*\)", style)] == []


def test_the_search_finds_every_page(site: Path, pages: dict[str, Reader]) -> None:
    """The index of the search, which runs in the reader's browser, has the text of every page."""
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert [page for page in pages if f'"location":"{page.removeprefix(FRONT)}"' not in index] == []


def test_every_document_is_a_page() -> None:
    """No document of the repository is left out but those that accompany data or a program's own folder."""
    left_out = ("tests/", "examples/", "terraform/", ".")
    documents = {path.relative_to(ROOT).as_posix() for path in tracked("*.md")}
    outside = {path for path in documents if not path.startswith(("docs/", *left_out))}
    assert outside - set(places.PAGES) == set()


PICTURES = sorted((ROOT / "docs" / "images").glob("*.svg"))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_used_and_described(picture: Path) -> None:
    """A page shows the picture with a text in its place, and the picture says the same to whoever cannot see it."""
    shown = re.compile(rf"!\[[^\]]{{20,}}\]\([\w./]*{re.escape(picture.name)}\)")
    assert [path for path in tracked("*.md") if shown.search(path.read_text(encoding="utf-8"))]
    drawing = picture.read_text(encoding="utf-8")
    assert "<title" in drawing
    assert "<desc" in drawing
    assert re.search(r'<rect[^>]*fill="#ffffff"', drawing), "a dark page needs a panel behind the picture"


@pytest.mark.parametrize(
    ("page", "written", "shown"),
    [
        ("swap.md", "[a](adr/0003-fusion-default.md#x)", "[a](adr/0003-fusion-default.md#x)"),
        ("swap.md", "[a](../README.md)", "[a](index.md)"),
        ("adr/0003-fusion-default.md", "[a](../recall.md)", "[a](../recall.md)"),
        ("index.md", "![a](docs/images/architecture.svg)", "![a](images/architecture.svg)"),
        ("index.md", "[a](docs/adr)", "[a](adr/index.md)"),
        ("library.md", "[a](../docs/recall.md)", "[a](recall.md)"),
        ("operator-package.md", "[a](../recall)", "[a](library.md)"),
        ("install.md", "one of [`examples/`](../examples)", "one of `examples/`"),
        ("install.md", "[a](#gpu) [b](https://kind.sigs.k8s.io)", "[a](#gpu) [b](https://kind.sigs.k8s.io)"),
        ("install.md", "```\n[a](../examples)\n```", "```\n[a](../examples)\n```"),
    ],
)
def test_a_link_of_the_repository_becomes_one_of_the_site(page: str, written: str, shown: str) -> None:
    """Links follow the documents to their places on the site; one to a folder becomes its text."""
    assert places.with_links_of_the_site(page, written) == shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("- a\n  b\n", "- a\n    b\n"),
        ("1. a\n\n   ```sh\n   b\n     c\n   ```\n\nd\n", "1. a\n\n    ```sh\n    b\n      c\n    ```\n\nd\n"),
        ("- a\n  - b\n    c\n- d\n", "- a\n    - b\n        c\n- d\n"),
        ("```\n- a\n  b\n```\n", "```\n- a\n  b\n```\n"),
        ("a - b\n  c\n", "a - b\n  c\n"),
    ],
)
def test_lists_are_indented_as_python_markdown_demands(written: str, shown: str) -> None:
    """What belongs to an item of a list stays with it, a block of code included."""
    assert lists.with_wide_indents(written) == shown


def test_the_first_page_of_a_section_lists_the_others() -> None:
    """Each page is named by its heading and described by its first sentence, without links."""
    texts = {"a.md": "# About a\n\nIt does [this](b.md). And that.\n", "b.md": "# About b\n\n- a list\n"}
    found = overviews.overview("Use", "use/index.md", ["a.md", "b.md", {"C": "a.md"}], texts.__getitem__)
    assert "- [About a](../a.md): It does this.\n- [About b](../b.md)\n- [C](../a.md): It does this." in found


def test_a_folder_of_the_navigation_becomes_its_pages(tmp_path: Path) -> None:
    """A page that is added to such a folder is in the navigation, and a section without pages is not."""
    (tmp_path / "adr").mkdir()
    for name in ("b", "a", "index"):
        (tmp_path / "adr" / f"{name}.md").touch()
    entries: list[overviews.Entry] = ["x.md", {"D": ["adr/index.md", "adr/*"]}, {"R": ["runs/README.md", "runs/*"]}]
    assert overviews.expanded(entries, tmp_path) == ["x.md", {"D": ["adr/index.md", "adr/a.md", "adr/b.md"]}]


def test_a_page_is_found_by_its_place() -> None:
    """Place and source are each other's inverse."""
    for path, page in places.PAGES.items():
        assert places.source(page) == path
        assert PurePosixPath(page).suffix == ".md"
