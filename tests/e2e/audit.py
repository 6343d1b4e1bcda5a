"""The writes of an account, from the API server's audit log."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from devcluster.cluster import Cluster

READS = {"get", "list", "watch"}


@dataclass(frozen=True)
class Write:
    """One request that may change something."""

    at: datetime
    verb: str
    target: tuple[str, ...]

    def concerns(self, name: str) -> bool:
        """Return whether the object is in the namespace of this name, or has the name itself."""
        return name in self.target


def audit_lines(cluster: Cluster) -> list[str]:
    """Return the lines of the log so far."""
    return cluster.audit_log.read_text().splitlines()


def writes(lines: Iterable[str], *, user: str) -> Iterator[Write]:
    """Return every write of `user` but renewals of its Lease, oldest first; an incomplete last line is ignored."""
    for line in lines:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        at = datetime.fromisoformat(entry["requestReceivedTimestamp"])
        # a request that was refused before it was known whose it is has no user name
        if entry["user"].get("username") == user and entry["verb"] not in READS:
            reference = entry.get("objectRef", {})
            if reference.get("resource") == "leases":
                continue
            parts = (reference.get(key, "") for key in ("resource", "subresource", "namespace", "name"))
            yield Write(at, entry["verb"], tuple(part for part in parts if part))
