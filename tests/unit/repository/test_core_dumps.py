"""No program of ours leaves a core file, which would hold memories, queries or a connection string."""

import subprocess
import sys

import pytest

_AFTER_THE_START = """
import ctypes, importlib, resource, sys
entry, sys.argv = importlib.import_module(sys.argv[1]), ["program", "--help"]
try:
    entry.main()
except SystemExit:
    pass
print(*resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))  # 3: whether it is dumpable
"""


@pytest.mark.promise("no-core-dump")
@pytest.mark.finding("M11")
@pytest.mark.parametrize("module", ["memory_recall.cli.app", "memory_operator.cli", "memory_embedder.cli"])
def test_a_program_forbids_core_files_before_it_does_anything(module: str) -> None:
    command = [sys.executable, "-c", _AFTER_THE_START, module]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "0 0 0"
