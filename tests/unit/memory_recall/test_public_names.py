"""Every public name of the library can be imported, and is what type checkers take it for."""

import ast
from pathlib import Path

import memory_recall


def test_each_public_name_is_found_where_type_checkers_find_it() -> None:
    """The modules that are imported on first use are those of the statements that type checkers read."""
    tree = ast.parse(Path(memory_recall.__file__).read_text(encoding="utf-8"))
    declared = {
        name.name: statement.module
        for statement in ast.walk(tree)
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("memory_recall.")
        for name in statement.names
    }
    assert declared == memory_recall._MODULES
    assert set(memory_recall.__all__) == set(declared)


def test_each_public_name_can_be_imported_and_is_listed() -> None:
    for name in memory_recall.__all__:
        assert getattr(memory_recall, name) is not None, name
    assert set(memory_recall.__all__) <= set(dir(memory_recall))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(memory_recall, "Forecast")
