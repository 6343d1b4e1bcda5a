"""Runs the memory API's own test suite, once on its unchanged sources and once on the patched sources."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from devcluster import processes
from devcluster.building.digests import sha256_of
from devcluster.settings import REPOSITORY, Settings
from tests.client.change import copy_client

_LOCK = REPOSITORY / "requirements" / "claude-memory-tests.txt"
_SECONDS = 1800.0


@dataclass(frozen=True)
class OwnTests:
    """The tests that passed before the change and after it."""

    before: frozenset[str]
    after: frozenset[str]

    @property
    def lost(self) -> frozenset[str]:
        """The tests that passed before the change but not after it."""
        return self.before - self.after


def run_own_tests(client: Path, scratch: Path, settings: Settings) -> OwnTests:
    """Run the suite twice, each time on a copy of the sources below the directory `scratch`."""
    python = _environment(settings)
    passed = []
    for name, patched in (("before", False), ("after", True)):
        copy = scratch / name
        copy_client(client, copy, patched=patched)
        passed.append(_run(python, copy, scratch / f"{name}.xml"))
    return OwnTests(*passed)


def passed_tests(report: str) -> frozenset[str]:
    """Return the names of the tests that passed, from a report in JUnit's form."""
    cases = ElementTree.fromstring(report).iter("testcase")  # noqa: S314  (pytest on this machine wrote it)
    return frozenset(f"{case.get('classname')}::{case.get('name')}" for case in cases if not len(case))


def _environment(settings: Settings) -> Path:
    """Return the interpreter of a virtual environment with the locked packages; it is made if it is missing."""
    directory = settings.cache_dir / "claude-memory" / sha256_of(_LOCK)[:16]
    python, ready = directory / "bin" / "python", directory / ".ready"
    if not ready.exists():
        uv = str(Path(sys.executable).with_name("uv"))
        processes.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(directory)])
        install = ["pip", "install", "--quiet", "--require-hashes", "-r", str(_LOCK)]
        processes.run([uv, *install, "--python", str(python)])
        ready.touch()
    return python


def _run(python: Path, sources: Path, report: Path) -> frozenset[str]:
    """Run pytest and return the names of the tests that passed; failed tests raise no error here."""
    # The profile `ci` of hypothesis has no deadlines and no random seed, so that two runs can be compared.
    arguments = ("-q", "--continue-on-collection-errors", "--hypothesis-profile=ci", "-p", "no:cacheprovider")
    environment = {
        "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(sources),
        "PYTHONPATH": f"{sources / 'src'}:{REPOSITORY / 'recall'}",
    }
    command = [str(python), "-m", "pytest", *arguments, f"--junitxml={report}"]
    subprocess.run(command, cwd=sources, env=environment, capture_output=True, timeout=_SECONDS, check=False)
    return passed_tests(report.read_text())
