"""Every public name of the library can be imported, and is what type checkers take it for."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import memory_recall
from memory_recall import errors


def test_each_public_name_is_found_where_type_checkers_find_it() -> None:
    """The modules that are imported on first use are those that the stub names."""
    tree = ast.parse(Path(memory_recall.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    statements = [statement for statement in tree.body if isinstance(statement, ast.ImportFrom)]
    declared = {name.asname: statement.module for statement in statements for name in statement.names}
    assert declared == memory_recall._MODULES
    assert set(memory_recall.__all__) == set(declared)


def test_each_public_name_can_be_imported_and_is_listed() -> None:
    for name in memory_recall.__all__:
        assert getattr(memory_recall, name) is not None, name
    assert set(memory_recall.__all__) <= set(dir(memory_recall))


def test_each_error_that_a_recall_says_it_raises_is_a_public_name() -> None:
    said = {
        name for name in re.findall(r"[A-Z]\w+", memory_recall.Recall.recall.__doc__ or "") if hasattr(errors, name)
    }
    assert "ReplicaRefused" in said
    assert said <= set(memory_recall.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(memory_recall, "Forecast")


def test_names_that_need_no_extra_are_imported_without_any() -> None:
    """An API installs the package alone; what an extra brings is imported from `contrib`."""
    project = tomllib.loads((Path(memory_recall.__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    absent = {re.split(r"[\[>]", requirement)[0].replace("-", "_") for requirement in extras}
    program = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(absent)}))  # an import of a module that is None fails
import memory_recall
for name in memory_recall.__all__:
    getattr(memory_recall, name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
