"""Find the addresses of the hosts that a MemoryIndex names, where the operator may connect to them.

What is returned here is what is connected to: a name is not resolved a second time. A Service is read from the
Kubernetes API server and not resolved at all, and what was read of it is used for a minute.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.clients.kube import KubeError
from memory_operator.clients.resolver import NameResolver, UnresolvedError
from memory_operator.reconcile.authorization.addresses import (
    Use,
    forbidden,
    is_forbidden,
    is_listed,
    not_permitted,
    plain_address,
    service_addresses,
    service_of,
)
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.facts import Problem

CACHED_SECONDS = 60.0
MOST_CACHED = 4096
Found = tuple[str, ...] | Problem
ReadService = Callable[[str, str], Awaitable[Manifest | None]]
_UNREACHABLE = {"database": Reason.DATABASE_UNREACHABLE, "embedder": Reason.EXTERNAL_UNREACHABLE}
_UNRESOLVED = {
    "database": Problem(
        Reason.DATABASE_UNREACHABLE,
        "The host of the connection URI has no address.",
        "Correct the host, or let the name servers of the cluster answer for it.",
    ),
    "embedder": Problem(
        Reason.EXTERNAL_UNREACHABLE,
        "The host of spec.embedder.external.url has no address.",
        "Correct the host, or let the name servers of the cluster answer for it.",
    ),
}


@dataclass
class Destinations:
    """Finds the addresses of databases and external embedders.

    `excluded` holds the addresses of the operator's own node and of the API server's Service.
    """

    read: ReadService
    names: NameResolver
    permitted: Permitted
    excluded: frozenset[str] = frozenset()
    clock: Callable[[], float] = monotonic
    _services: dict[tuple[Use, str, str], tuple[float, Found]] = field(default_factory=dict)

    async def database(self, namespace: str, host: str) -> Found:
        """Return the addresses of a database's host that an object of this namespace names, or a problem with it."""
        return await self._find("database", namespace, host.lower())

    async def embedder(self, namespace: str, host: str) -> Found:
        """Return the addresses of an external embedder's host, or a problem with it."""
        return await self._find("embedder", namespace, host.lower())

    async def _find(self, use: Use, namespace: str, host: str) -> Found:
        address = plain_address(host)
        listed = self.permitted.database_hosts if use == "database" else self.permitted.external_hosts
        if is_listed(host, listed):
            return (address,) if address else await self._resolve(use, namespace, host)
        service = service_of(host, namespace)
        return not_permitted(use, host) if service is None else await self._service(use, *service)

    async def _resolve(self, use: Use, namespace: str, host: str) -> Found:
        try:
            found = await self.names.addresses(namespace, host)
        except UnresolvedError:
            return _UNRESOLVED[use]
        return tuple(one for one in found if not is_forbidden(one, excluded=self.excluded)) or forbidden(use)

    async def _service(self, use: Use, namespace: str, name: str) -> Found:
        key, now = (use, namespace, name), self.clock()
        if key in self._services and now - self._services[key][0] < CACHED_SECONDS:
            return self._services[key][1]
        found = await self._read_service(use, namespace, name)
        if isinstance(found, tuple):
            if len(self._services) >= MOST_CACHED:
                self._services.clear()
            self._services[key] = (now, found)
        return found

    async def _read_service(self, use: Use, namespace: str, name: str) -> Found:
        try:
            service = await self.read(namespace, name)
        except KubeError as error:
            if not error.refused:
                raise
            message = f"The operator may not read Service {namespace}/{name}."
            return Problem(Reason.NOT_PERMITTED, message, f"Have {namespace} added to databaseNamespaces of its chart.")
        if service is None:
            message = f"There is no Service {namespace}/{name}, and no permitted host of that name."
            return Problem(_UNREACHABLE[use], message, "Create the Service, or correct the host.")
        return service_addresses(service, use, excluded=self.excluded)
