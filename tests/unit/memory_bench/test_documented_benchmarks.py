"""What the documents tell a reader to type of the benchmarks exists."""

from pathlib import Path

import pytest
from typer.main import get_command

from memory_bench.__main__ import app
from tests.support.documents import divided, documented, require_known

PROGRAMS = {"python -m memory_bench": get_command(app)}
CASES = [(document, command) for document, command in documented() if divided(command, PROGRAMS)]


def named(case: object) -> str:
    return case.name if isinstance(case, Path) else str(case)[:60]


@pytest.mark.parametrize(("document", "command"), CASES, ids=named)
def test_documented_benchmarks_know_their_options(document: Path, command: str) -> None:
    """Every sub-command and long option that a document uses is one of the program's own."""
    found = divided(command, PROGRAMS)
    assert found is not None
    name, words = found
    require_known(name, words, PROGRAMS[name])
