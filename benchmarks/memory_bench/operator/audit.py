"""The requests of an account, from the API server's audit log."""

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
    """One request; `pod` is empty where the account is not a pod's."""

    at: datetime
    verb: str
    target: str
    pod: str = ""

    @property
    def reads(self) -> bool:
        """Whether it is a single read; a watch is open all the time."""
        return self.verb in {"get", "list"}

    @property
    def writes(self) -> bool:
        """Whether it may change something other than who leads."""
        return self.verb not in READS and not self.target.startswith("leases/")

    def concerns(self, name: str) -> bool:
        """Return whether the object is in the namespace of this name, or has the name itself."""
        return name in self.target.split("/")


def audit_lines(cluster: Cluster) -> list[str]:
    """Return the lines of the log so far."""
    return cluster.audit_log.read_text().splitlines()


def requests(lines: Iterable[str], *, user: str) -> Iterator[Request]:
    """Return every request of `user`, oldest first; an incomplete last line is ignored."""
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
    """Return every write of `user`, oldest first."""
    return (request for request in requests(lines, user=user) if request.writes)


class AuditTail:
    """Reads what is added to the log, also after the API server has renamed it and begun another."""

    def __init__(self, path: Path, user: str) -> None:
        self._path = path
        self._user = user
        self._log = path.open("rb")
        self._log.seek(0, SEEK_END)
        self._begun = b""

    def read(self) -> list[Request]:
        """Return the user's requests since the last call; a line that is still being written is left for the next."""
        content = self._begun + self._log.read()
        if self._path.stat().st_ino != os.fstat(self._log.fileno()).st_ino:
            content += self._log.read()
            self._log.close()
            self._log = self._path.open("rb")
            content += self._log.read()
        whole, newline, self._begun = content.rpartition(b"\n")
        return list(requests((whole + newline).decode().splitlines(), user=self._user))

    def close(self) -> None:
        """Close the log."""
        self._log.close()
