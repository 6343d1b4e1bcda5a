"""Looks up known vulnerabilities of everything that the locked requirements name, with pip-audit.

pip-audit asks a service about one package after the other. If that service cannot be reached or knows none of the
packages, nothing has been audited; the audit then reports this, and not success. One small lock is audited first, so
that a machine without the service learns that within seconds.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.errors import CommandError, DevclusterError
from devcluster.processes import describe, tail

_SECONDS_FOR_ONE_ANSWER = 5
_SECONDS_FOR_ALL = 600
# How pip-audit and its HTTP client name a service that does not answer, or answers with an error of its own.
_UNREACHABLE = re.compile(
    r"Could not connect to|ConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|RetryError|ServiceError"
)
_LOCKED = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)
NO_DATA = "no vulnerability data can be reached from here: nothing was audited"


@dataclass(frozen=True)
class Audit:
    """The result of an audit: the number of packages that the service knows, the unknown packages, and the findings."""

    audited: int
    unknown: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()

    @property
    def has_data(self) -> bool:
        """Whether the service knew any of the packages."""
        return self.audited > 0


def audit_locks(locks: Sequence[Path]) -> str:
    """Audit locked requirements, and return the result as one line of text.

    Raises:
        DevclusterError: a vulnerability is known, only a part of the packages could be audited, or pip-audit failed.
    """
    smallest = min(locks, key=lambda path: path.read_text(encoding="utf-8").count("=="))
    probe = _run([smallest])
    if probe is None or not probe.has_data:
        return NO_DATA
    audits = [_run(group) for group in together(locks)]
    answered = [audit for audit in audits if audit is not None]
    if len(answered) < len(audits):
        raise DevclusterError("the vulnerability service stopped answering", remedy="run `make audit` again")
    audit = Audit(
        sum(one.audited for one in answered),
        tuple(sorted({name for one in answered for name in one.unknown})),
        tuple(sorted({finding for one in answered for finding in one.findings})),
    )
    if audit.findings:
        raise DevclusterError(
            f"known vulnerabilities in {len(audit.findings)} locked packages",
            detail="\n".join(audit.findings),
            remedy="raise the versions with `make lock`, or say in SECURITY.md why one does not apply",
        )
    if audit.unknown:
        raise DevclusterError(
            f"{len(audit.unknown)} locked packages are unknown to the vulnerability service",
            detail="\n".join(audit.unknown),
            remedy="check their names: a package that the public index does not have may be somebody else's",
        )
    return f"no known vulnerabilities in {audit.audited} locked packages"


def together(locks: Sequence[Path]) -> list[list[Path]]:
    """Return the locks in groups in which no package has two versions, since pip-audit refuses those."""
    groups = list[tuple[dict[str, str], list[Path]]]()
    for lock in locks:
        versions = dict(_LOCKED.findall(lock.read_text(encoding="utf-8")))
        for known, group in groups:
            if all(known.get(name, version) == version for name, version in versions.items()):
                known.update(versions)
                group.append(lock)
                break
        else:
            groups.append((versions, [lock]))
    return [group for _, group in groups]


def read_audit(document: str) -> Audit:
    """Parse the JSON that pip-audit writes; a package that is in several lock files counts once."""
    packages: dict[tuple[str, str], dict[str, Any]] = {
        (entry["name"], entry.get("version", "")): entry for entry in json.loads(document)["dependencies"]
    }
    unknown = [str(entry["skip_reason"]) for entry in packages.values() if "skip_reason" in entry]
    findings = [_describe(entry) for entry in packages.values() if entry.get("vulns")]
    return Audit(len(packages) - len(unknown), tuple(sorted(unknown)), tuple(sorted(findings)))


def _describe(entry: dict[str, Any]) -> str:
    found = [
        f"{vulnerability['id']} (fixed in {', '.join(vulnerability['fix_versions']) or 'no version yet'})"
        for vulnerability in entry["vulns"]
    ]
    return f"{entry['name']} {entry['version']}: {', '.join(found)}"


def _run(locks: Sequence[Path]) -> Audit | None:
    """Audit locks with pip-audit; return None if its service does not answer."""
    command = [
        *(sys.executable, "-m", "pip_audit", "--format=json", "--progress-spinner=off", "--desc=off"),
        *("--require-hashes", "--disable-pip", f"--timeout={_SECONDS_FOR_ONE_ANSWER}"),
        *(f"--requirement={lock}" for lock in locks),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_FOR_ALL, check=False)
    except subprocess.TimeoutExpired as error:
        raise DevclusterError(f"pip-audit did not end within {_SECONDS_FOR_ALL} s") from error
    # It ends with 1 for findings and for failures alike, and writes a document in the first case only.
    if done.stdout.lstrip().startswith("{"):
        return read_audit(done.stdout)
    if _UNREACHABLE.search(done.stderr):
        return None
    raise CommandError(
        f"{describe(command)} failed with status {done.returncode}",
        returncode=done.returncode,
        output=tail(done.stderr),
    )
