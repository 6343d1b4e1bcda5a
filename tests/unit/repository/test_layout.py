"""The rules of the repository that a linter does not know."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LONGEST_FUNCTION = 42


def tracked(*patterns: str) -> list[Path]:
    """Files that git tracks, without those deleted in the working tree."""
    listing = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


SHIPPED = [*tracked("tests/support/*.py", "tests/client/*.py"), *tracked("*.py", ":!tests")]


def test_the_operator_folder_does_not_shadow_the_standard_library() -> None:
    """A package named operator or tests/operator would replace the standard library's module of that name."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not list((ROOT / "tests").rglob("operator"))


def statements_span(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from a function's first statement to its last; signature and docstring are documentation."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or function.lineno) - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("folder", sorted({path.relative_to(ROOT).parts[0] for path in SHIPPED}))
def test_functions_stay_readable(folder: str) -> None:
    """No function's statements outgrow 42 lines."""
    long = {}
    for path in SHIPPED:
        name = path.relative_to(ROOT)
        nodes = ast.walk(ast.parse(path.read_text())) if name.parts[0] == folder else ()
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        long |= {f"{name}:{function.lineno}": statements_span(function) for function in functions}
    assert {function: lines for function, lines in long.items() if lines > LONGEST_FUNCTION} == {}


def test_documents_wrap_at_120_columns() -> None:
    """A line of a document, code blocks included, has at most 120 characters; only a table's row may be longer."""
    long = [f"{path.relative_to(ROOT)}:{number}" for path in tracked("*.md") for number in long_lines(path.read_text())]
    assert long == []


def long_lines(document: str) -> list[int]:
    """The numbers of lines of more than 120 characters, without those of tables."""
    in_block, found = False, []
    for number, line in enumerate(document.splitlines(), 1):
        in_block ^= line.lstrip().startswith("```")
        if len(line) > 120 and (in_block or not line.lstrip().startswith("|")):
            found.append(number)
    return found


def test_make_check_holds_these_rules() -> None:
    """`make check` runs this module, so that a line that is too long is seen before all tests run."""
    planned = subprocess.run(["make", "--dry-run", "check"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert str(Path(__file__).relative_to(ROOT)) in planned.stdout


def test_a_table_may_be_wide_and_a_pipe_in_a_code_block_may_not() -> None:
    """A line that begins with a bar is a table's row outside code blocks only."""
    wide = "| " + "x" * 120
    assert long_lines(f"{wide}\n```sh\n{wide}\n```\n{wide}\n") == [3]


def test_locked_requirements_carry_hashes_and_no_addresses() -> None:
    """A lock names what is installed and its hashes; where it comes from is the machine's own business."""
    locks = tracked("requirements/*.txt")
    assert locks
    for lock in locks:
        text = lock.read_text()
        pinned = re.findall(r"^[a-z0-9][^\s=]*==", text, re.MULTILINE)
        assert pinned, lock.name
        assert len(re.findall(r"--hash=sha256:", text)) >= len(pinned), lock.name
        assert "://" not in text, lock.name
        assert "--index-url" not in text, lock.name


def test_every_direct_dependency_is_justified() -> None:
    """Each dependency of a distribution carries a comment that says what it is for."""
    for project in tracked("*/pyproject.toml"):
        listed = re.findall(r'^  ("[^"]+",.*)$', project.read_text(), re.MULTILINE)
        assert listed, project
        assert [line for line in listed if "#" not in line] == [], project


def test_ignored_lint_rules_state_their_reason() -> None:
    """An ignore without a reason, beside it or in the comment above, is a rule switched off."""
    for path in SHIPPED:
        lines = path.read_text().splitlines()
        for above, line in zip(["", *lines], lines, strict=False):
            ignore = re.search(r"# (noqa|type: ignore)(?P<rest>.*)", line)
            if ignore and not above.strip().startswith("#"):
                assert re.search(r"(#|-|\u2014|\() *\w", ignore["rest"]), f"{path.relative_to(ROOT)}: {line.strip()}"
