"""The hooks that MkDocs calls while it builds the site; they add files from outside `docs/` and adapt every page."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.makers.site.figures import with_days_of_measurement
from docs.makers.site.lists import with_wide_indents
from docs.makers.site.overviews import Entry, expanded, overview
from docs.makers.site.places import PAGES, REPOSITORY, linked_files, source, with_links_of_the_site


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each FOLDER/* of the navigation by the pages of that folder."""
    config.nav = expanded(config.nav or [], Path(config.docs_dir))
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the documents that lie outside `docs/`, the files that pages link to, and the first page of each section."""
    for path, place in PAGES.items():
        files.append(File.generated(config, place, abs_src_path=str(REPOSITORY / path)))
    pages = [file.src_uri for file in files.documentation_pages()]
    for path in sorted({path for page in pages for path in linked_files(page, _text(page))}):
        files.append(File(path, str(REPOSITORY), config.site_dir, config.use_directory_urls))
    _add_overviews(config.nav or [], files, config)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt links and lists of a page to the site, and say when its figures were measured."""
    del config, files
    return with_wide_indents(with_links_of_the_site(page.file.src_uri, with_days_of_measurement(markdown)))


def _add_overviews(entries: list[Entry], files: Files, config: MkDocsConfig) -> None:
    for entry in entries:
        for title, inner in entry.items() if isinstance(entry, dict) else ():
            if isinstance(inner, list):
                first, *others = inner
                if files.get_file_from_path(str(first)) is None:
                    content = overview(title, str(first), others, _text)
                    files.append(File.generated(config, str(first), content=content))
                _add_overviews(others, files, config)


def _text(page: str) -> str:
    path: Path = REPOSITORY / source(page)
    return path.read_text(encoding="utf-8")
