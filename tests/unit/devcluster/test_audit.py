"""`make audit` beside a vulnerability service that knows something, knows nothing, or cannot be reached.

pip-audit itself runs; the service is a local one that speaks OSV's interface.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from devcluster.building.audit import NO_DATA, read_audit, together
from devcluster.settings import REPOSITORY

FINDING = {
    "id": "PYSEC-2099-1",
    "summary": "invented",
    "affected": [
        {
            "package": {"name": "pathspec", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.1"}]}],
        }
    ],
}


class Service(BaseHTTPRequestHandler):
    """A service that knows one vulnerability, in the package `vulnerable`, and answers 503 after `answers` requests.

    `asked` collects the names of the packages that were looked up.
    """

    vulnerable: ClassVar[str] = ""
    answers: ClassVar[int] = 0
    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        name = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["package"]["name"]
        type(self).asked.append(name)
        found = {"vulns": [FINDING]} if name == self.vulnerable else {}
        self.send_response(200 if len(self.asked) <= self.answers else 503)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def service() -> Iterator[type[Service]]:
    class Handler(Service):
        asked: ClassVar[list[str]] = []
        answers: ClassVar[int] = 1_000_000

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        Handler.url = f"http://127.0.0.1:{server.server_address[1]}/"  # type: ignore[attr-defined]
        yield Handler
        server.shutdown()
        thread.join()


def audit(url: str, *locks: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PIP_AUDIT_VULNERABILITY_SERVICE": "osv", "PIP_AUDIT_OSV_URL": url}
    return subprocess.run(
        [sys.executable, "-m", "devcluster", "audit", *map(str, locks)],
        env=environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_locked_package_is_looked_up(service: Any) -> None:
    """Without naming any file, the locks are all files of requirements, and none of their packages is left out."""
    done = audit(service.url)
    assert done.returncode == 0, done.stderr
    locks = [path.read_text() for path in REPOSITORY.glob("requirements/*.txt")]
    named = {
        line.split("==")[0] for text in locks for line in text.splitlines() if line[:1].isalpha() and ";" not in line
    }
    assert named <= set(service.asked)
    assert done.stdout.startswith("no known vulnerabilities in ")


def test_locks_with_different_versions_of_a_package_are_audited_apart(tmp_path: Path) -> None:
    """pip-audit refuses two versions of a package in one run."""
    locks = []
    for name, version in (("one", "1.0"), ("two", "2.0"), ("three", "1.0")):
        locks.append(tmp_path / f"{name}.txt")
        locks[-1].write_text(f"pathspec=={version} \\\n    --hash=sha256:aa\n{name}==1.0\n")
    assert together(locks) == [[locks[0], locks[2]], [locks[1]]]


def test_a_known_vulnerability_fails_with_package_identifier_and_fixed_version(service: Any) -> None:
    service.vulnerable = "pathspec"
    done = audit(service.url, REPOSITORY / "requirements" / "build.txt")
    assert done.returncode == 1
    assert all(text in done.stderr for text in ("pathspec", "PYSEC-2099-1", "99.1"))


def test_without_a_service_nothing_counts_as_audited_and_nothing_fails() -> None:
    done = audit("http://127.0.0.1:9/", REPOSITORY / "requirements" / "build.txt")
    assert (done.returncode, done.stdout.strip()) == (0, NO_DATA)


def test_a_service_that_stops_answering_fails(service: Any) -> None:
    """What was audited in part is no success."""
    service.answers = 2
    done = audit(service.url, *(REPOSITORY / "requirements" / name for name in ("uv.txt", "build.txt")))
    assert done.returncode == 1
    assert "stopped answering" in done.stderr


def test_a_lock_that_cannot_be_read_fails(tmp_path: Path, service: Any) -> None:
    broken = tmp_path / "broken.txt"
    broken.write_text("name-without-version\n")
    done = audit(service.url, broken)
    assert done.returncode == 1
    assert "pip_audit" in done.stderr


def test_packages_that_the_service_does_not_know_are_not_audited() -> None:
    """pip-audit itself would end with success here."""
    skipped = {"name": "a", "skip_reason": "not found: a (1)"}
    assert not read_audit(json.dumps({"dependencies": [skipped]})).has_data
    known = {"name": "b", "version": "1", "vulns": []}
    audit = read_audit(json.dumps({"dependencies": [skipped, known, known]}))
    assert (audit.audited, audit.unknown) == (1, ("not found: a (1)",))
