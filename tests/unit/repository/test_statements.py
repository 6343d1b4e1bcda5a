"""SQL lies in the room of its feature, in modules named *_sql.py or folders named sql, and nowhere else."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STATEMENT = re.compile(
    r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH \w+ AS|ALTER|CREATE|DROP|LOCK TABLE|TRUNCATE|SET \w+|REINDEX|"
    r"VACUUM|DO LANGUAGE)\s"
)
# Rooms that are SQL as a whole: the schema's DDL, the indexes' DDL, the concept graph, and SQLite's own dialect.
SQL_ROOMS = ("schema/", "hnsw/", "graph/", "contrib/sqlite.py")


def statements(source: str) -> list[int]:
    """The lines of string literals that begin a statement; docstrings are no literals of a program."""
    tree = ast.parse(source)
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documentation
        and STATEMENT.match(node.value)
    ]


def may_hold_statements(name: str) -> bool:
    """Whether a module, named from its package's folder, is one where statements belong."""
    return name.endswith("_sql.py") or "/sql/" in name or name.startswith(SQL_ROOMS)


def test_only_sql_modules_build_statements() -> None:
    """A statement elsewhere would be overlooked by who changes a column or a rule."""
    listing = subprocess.run(
        ["git", "ls-files", "recall/*.py", "operator/*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = {}
    for path in listing.stdout.split():
        name = path.split("/", 2)[2]
        if (ROOT / path).is_file() and not may_hold_statements(name):
            lines = statements((ROOT / path).read_text())
            found |= {path: lines} if lines else {}
    assert found == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('x = f"SELECT {a} FROM t"', [1]),
        ('"""SELECT is a word."""\nx = "Update me"', []),
        ('y = "\\nWITH a AS (z)"', [1]),
    ],
)
def test_a_statement_is_recognised(source: str, lines: list[int]) -> None:
    """Literals of statements count, also in parts; documentation and prose do not."""
    assert statements(source) == lines
