"""The SQL of the runbooks names no table or column by itself, because a MemoryIndex may have others, and keeps data."""

import re

import pytest

from tests.delivery.pages import Page, read_page
from tests.support.documents import ROOT

PAGES = {
    path.stem: read_page(path)
    for path in sorted((ROOT / "docs" / "runbooks").glob("*.md"))
    if path.stem != "README" and "psql" in path.read_text()
}
OUR_NAMES = re.compile(r"\b(memories|is_sensitive|deleted_at|embedding|memory_embedding_failures)\b")
WRITTEN = re.compile(r'^([A-Z]+)="(?:UPDATE|INSERT|DELETE FROM|TRUNCATE)\b', re.MULTILINE)


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> Page:
    return PAGES[request.param]


def test_the_names_are_variables_of_the_page(page: Page) -> None:
    """With another table the page would report a failure after a success, or look at a table that is not ours."""
    assert not [line for block in page.blocks for line in block.splitlines() if OUR_NAMES.search(line)]


def test_a_statement_that_writes_is_rolled_back(page: Page) -> None:
    """It is run as superuser on the table of memories, and is there to be refused."""
    commands = "\n".join(page.blocks)
    written = WRITTEN.findall(commands)
    assert len(written) == len(re.findall(r"\b(?:UPDATE|INSERT|DELETE FROM|TRUNCATE)\b", commands))
    for variable in written:
        assert f'SQL "BEGIN; ${variable}; ROLLBACK"' in commands
        assert commands.count(f"${variable}") == 1
