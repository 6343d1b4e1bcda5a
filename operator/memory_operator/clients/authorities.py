"""Read the certificate authorities of database servers and embedders, and use what was read for ten seconds.

All objects with a database of one Cluster need the authority of this Cluster, so its Secret would otherwise be read at
each of their observations. Of a Secret only the certificates are kept.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic

from memory_operator.api.spec import Manifest
from memory_operator.clients.kube import KubeError
from memory_operator.clients.object_facts import secret_value
from memory_operator.reconcile.authorization.database_tls import certificates_of, unreadable_authority
from memory_operator.reconcile.facts import Problem

CACHED_SECONDS = 10.0
MOST_CACHED = 4096
_VERIFIED = {"database": "database", "embedder": "embedder", "serving": "embedder"}
Place = tuple[str, str, str]
ReadSecret = Callable[[str, str], Awaitable[Manifest | None]]


@dataclass
class Authorities:
    """Reads the certificates in Secrets; a place is the namespace, the name and the key of one."""

    read: ReadSecret
    clock: Callable[[], float] = monotonic
    _certificates: dict[Place, tuple[float, str]] = field(default_factory=dict)

    async def certificates(self, place: Place, verified: str = "database") -> str | Problem:
        """Return the certificates at a place, or the problem with them, which is looked at anew each time.

        `verified` is what they verify: "database", "embedder" for an external one, or "serving" for one that the
        operator runs.
        """
        now = self.clock()
        if place in self._certificates and now - self._certificates[place][0] < CACHED_SECONDS:
            return self._certificates[place][1]
        found = await self._read(*place, verified)
        if isinstance(found, str):
            if len(self._certificates) >= MOST_CACHED:
                self._certificates.clear()
            self._certificates[place] = (now, found)
        return found

    def forget(self, place: Place) -> None:
        """Read the certificates at a place again at the next call, as they do not verify the server."""
        self._certificates.pop(place, None)

    async def _read(self, namespace: str, name: str, key: str, verified: str) -> str | Problem:
        location = f"{namespace}/{name}"
        try:
            found = await self.read(namespace, name)
        except KubeError as error:
            if not error.refused:
                raise
            return unreadable_authority(location, verified)
        text = secret_value(found, location, key, holds=f"the certificate authority of the {_VERIFIED[verified]}")
        return certificates_of(text, location, verified)
