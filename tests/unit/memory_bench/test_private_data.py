"""What benchmarks and users make of a store never gets into the repository, and only its owner may read it."""

import json
import stat
import subprocess
from pathlib import Path

import pytest

from memory_bench.__main__ import COMMANDS
from memory_bench.report import commit, create_private, results_directory, write_private_json

ROOT = Path(__file__).parents[3]
MADE = (
    "data/mine/corpus.jsonl",
    "own/queries.jsonl",
    "results/mine/report.md",
    "results/mine/raw/hybrid.json",
    "exports/memories.jsonl",
    "memories.jsonl",
    "questions.jsonl",
    "labels.json",
    "report.html",
    "memory.db",
    "memory.sqlite3",
    "vectors/document-0123.npy",
    "build/benchmarks/recall/report.md",
    "benchmarks/results/recall/homelab/raw/hybrid.json",
    "bge-small-en-v1.5.gguf",
)


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", MADE)
def test_git_ignores_what_is_made_of_a_store(path: str) -> None:
    """Own sets, exports, labels, caches and results are not offered to `git add`."""
    assert git("check-ignore", "--no-index", "--quiet", path).returncode == 0


def test_no_tracked_file_is_ignored() -> None:
    """The patterns for own files hide nothing that the repository holds."""
    assert git("ls-files", "--cached", "--ignored", "--exclude-standard").stdout == ""


@pytest.mark.parametrize("benchmark", sorted(COMMANDS))
def test_results_are_not_tracked(benchmark: str) -> None:
    """No benchmark writes to the folder of tracked results; `keep` does so afterwards."""
    ignored = results_directory(benchmark, None) / "summary.json"
    assert git("check-ignore", "--no-index", "--quiet", str(ignored)).returncode == 0
    assert results_directory(benchmark, Path("elsewhere")) == Path("elsewhere")


def test_no_benchmark_names_the_folder_of_kept_results_by_itself() -> None:
    """A default that leads there would overwrite tracked files unasked."""
    sources = (ROOT / "benchmarks" / "memory_bench").rglob("*.py")
    naming = [file.name for file in sources if "benchmarks/results" in file.read_text() and file.name != "kept.py"]
    recipes = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("\t")]
    assert not naming
    assert not [line for line in recipes if "benchmarks/results" in line]


def test_only_the_owner_reads_results_by_question(tmp_path: Path) -> None:
    """The mode is 0600 from the first byte on, also where a readable file was before."""
    path = tmp_path / "raw" / "hybrid.json"
    path.parent.mkdir()
    path.write_text("{}")
    path.chmod(0o644)
    write_private_json(path, {"a": 1})
    assert (json.loads(path.read_text()), stat.S_IMODE(path.stat().st_mode)) == ({"a": 1}, 0o600)
    with create_private(tmp_path / "new") as file:
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
        file.write(b"")


def test_the_commit_is_that_of_the_working_tree() -> None:
    """A result says by which sources it was made."""
    found = commit()
    assert found is not None
    assert found["id"] == git("rev-parse", "HEAD").stdout.strip()
