"""Read the Secrets of one observation, several of whose facts may be about the same one."""

from memory_operator.api.spec import Manifest
from memory_operator.clients.kube import Kube


class SecretReader:
    """Reads Secrets of one namespace from the API server, each of them once."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self.namespace = namespace
        self._read: dict[str, Manifest | None] = {}

    async def get(self, name: str) -> Manifest | None:
        """Return a Secret, or None if it does not exist."""
        if name not in self._read:
            self._read[name] = await self._kube.get("Secret", self.namespace, name)
        return self._read[name]
