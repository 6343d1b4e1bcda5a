"""Runs the memory API's own test suite, once on its unchanged sources and once on the patched sources."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from devcluster.settings import REPOSITORY, Settings
from tests.client.change import copy_client
from tests.support.locked_environment import locked_environment

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
    python = locked_environment(settings, "claude-memory", _LOCK)
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
