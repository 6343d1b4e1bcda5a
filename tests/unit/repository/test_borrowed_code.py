"""Tests borrow nothing from the benchmarks; what both need is in tests/support."""

import ast
from pathlib import Path

from tests.unit.repository.test_layout import ROOT, tracked

OF_BENCHMARKS = ("tests/unit/memory_bench", "tests/integration/memory_bench")
OTHERS = [
    path for path in tracked("tests/*.py") if not any(path.is_relative_to(ROOT / folder) for folder in OF_BENCHMARKS)
]


def imported(source: str) -> set[str]:
    """The top-level packages that a module imports anywhere, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_only_the_benchmarks_own_tests_import_them() -> None:
    """Of hundreds of files, only those that contain the name need be parsed."""
    naming = [path for path in OTHERS if path != Path(__file__) and "memory_bench" in path.read_text()]
    assert naming
    assert [path for path in naming if "memory_bench" in imported(path.read_text())] == []


def test_an_import_inside_a_function_is_noticed() -> None:
    assert imported("def f():\n    from memory_bench.report import now\n") == {"memory_bench"}
