"""What needs an optional dependency says which extra to install where it is missing."""

import subprocess
import sys

import pytest

# A finder that hides a package, as if it were not installed.
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name={package!r})
sys.meta_path.insert(0, Hidden())
"""
NAMES = [
    ("dates", "find_period", "dateparser", "consolidation"),
    ("fastapi", "create_recall_router", "fastapi", "api"),
    ("prometheus", "RecallMetrics", "prometheus_client", "metrics"),
]


def run(package: str, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDE.format(package=package) + program], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("module", "name", "package", "extra"), NAMES)
def test_a_name_without_its_extra_is_refused_with_the_command_that_installs_it(
    module: str, name: str, package: str, extra: str
) -> None:
    """The error is one of the library's and an ImportError, and nothing of the missing package's own error remains."""
    done = run(
        package,
        "from memory_recall import MemoryIndexError\n"
        f"try:\n    from memory_recall.contrib.{module} import {name}\n"
        "except ImportError as error:\n"
        "    assert isinstance(error, MemoryIndexError) and error.__suppress_context__\n"
        "    print(error.reason, error)\n",
    )
    assert done.stdout == (
        f"MissingExtra {name} needs the package {package}, which is not installed. "
        f"Install memory-recall with the extra {extra}: pip install 'memory-recall[{extra}]'.\n"
    ), done.stderr


def test_the_command_without_its_extra_says_so_in_one_line() -> None:
    """A console script prints a stack trace of an error that its import raises."""
    done = run("typer", "from memory_recall.cli.app import main")
    assert done.returncode == 1
    assert done.stderr == (
        "The command memory needs the package typer, which is not installed. "
        "Install memory-recall with the extra cli: pip install 'memory-recall[cli]'.\n"
    )
