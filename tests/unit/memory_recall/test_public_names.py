"""Every public name of the library can be imported, and is what type checkers take it for."""

import ast
import re
import subprocess
import sys
import tomllib
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


def test_names_that_need_no_extra_are_imported_without_any() -> None:
    """An API installs the package alone; what only an extra brings is not there."""
    project = tomllib.loads((Path(memory_recall.__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    absent = {re.split(r"[\[>]", requirement)[0].replace("-", "_") for requirement in extras}
    names = set(memory_recall.__all__) - {"create_recall_router", "RecallMetrics", "find_period"}
    program = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(absent)}))  # an import of a module that is None fails
import memory_recall
for name in {sorted(names)}:
    getattr(memory_recall, name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
