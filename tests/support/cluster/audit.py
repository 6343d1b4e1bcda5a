"""Reads the requests of one account from the API server's audit log."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from os import SEEK_END
from pathlib import Path

from devcluster.cluster import Cluster

READS = {"get", "list", "watch"}
_POD = "authentication.kubernetes.io/pod-name"


@dataclass(frozen=True)
class Request:
    """One request to the API server; `pod` is empty if the request does not come from a pod."""

    at: datetime
    verb: str
    target: str
    pod: str = ""

    @property
    def reads(self) -> bool:
        """Whether the request is a get or a list; a watch does not count, because it is open all the time."""
        return self.verb in {"get", "list"}

    @property
    def writes(self) -> bool:
        """Whether the request may change an object other than a Lease."""
        return self.verb not in READS and not self.target.startswith("leases/")

    def concerns(self, name: str) -> bool:
        """Return whether the request's object is in the namespace `name` or is itself called `name`."""
        return name in self.target.split("/")


def audit_lines(cluster: Cluster) -> list[str]:
    """Return the lines that the cluster's audit log has so far."""
    return cluster.audit_log.read_text().splitlines()


def requests(lines: Iterable[str], *, user: str) -> Iterator[Request]:
    """Yield the requests of `user` from lines of the audit log, oldest first; an incomplete line is skipped."""
    for line in lines:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        # a request that was refused before it was known whose it is has no user name
        if entry["user"].get("username") == user:
            reference = entry.get("objectRef", {})
            parts = (reference.get(key, "") for key in ("resource", "subresource", "namespace", "name"))
            yield Request(
                datetime.fromisoformat(entry["requestReceivedTimestamp"]),
                entry["verb"],
                "/".join(part for part in parts if part),
                next(iter(entry["user"].get("extra", {}).get(_POD, ())), ""),
            )


def writes(lines: Iterable[str], *, user: str) -> Iterator[Request]:
    """Yield the requests of `user` that may change an object other than a Lease, oldest first."""
    return (request for request in requests(lines, user=user) if request.writes)


class AuditTail:
    """Reads what is added to the audit log, even after the API server has renamed the file and begun a new one."""

    def __init__(self, path: Path, user: str) -> None:
        self._path = path
        self._user = user
        self._log = path.open("rb")
        self._log.seek(0, SEEK_END)
        self._begun = b""

    def read(self) -> list[Request]:
        """Return the user's requests since the last call.

        If the last line is incomplete, a later call returns its request.
        """
        content = self._begun + self._log.read()
        if self._path.stat().st_ino != os.fstat(self._log.fileno()).st_ino:
            content += self._log.read()
            self._log.close()
            self._log = self._path.open("rb")
            content += self._log.read()
        whole, newline, self._begun = content.rpartition(b"\n")
        return list(requests((whole + newline).decode().splitlines(), user=self._user))

    def close(self) -> None:
        """Close the audit log."""
        self._log.close()
