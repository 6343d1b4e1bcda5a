"""An embedder that follows the active model's address, so that a running API is not disturbed by a model swap.

Every recall statement returns which model is active and where it is served. Where a query's vector was refused because
another model has become active, or where the embedder has gone, the recall turns to that address and tries once more.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from memory_recall.embedding.address_policy import is_trusted_embedder_url, may_have_key
from memory_recall.embedding.client import EmbedderClient

Connect = Callable[[str, str], EmbedderClient]


@dataclass(frozen=True, slots=True)
class ActiveSeen:
    """The active model as a recall statement returned it."""

    name: str
    digest: str | None
    url: str | None


class FollowingEmbedder:
    """Embeds queries with the active model's embedder, and starts with the configured one. Close it at the end.

    `connect` makes a client from a URL and a model's name. Only addresses near `base_url` (see
    `memory_recall.embedding.address_policy`) and `trusted_hosts` are followed. The API key is sent to the host of
    `base_url` and to `trusted_hosts`, but not to other neighbours.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: str | None = None,
        *,
        trusted_hosts: Iterable[str] = (),
        connect: Connect | None = None,
    ) -> None:
        self._trusted_hosts = frozenset(trusted_hosts)

        def connect_with_key(url: str, name: str) -> EmbedderClient:
            entitled = may_have_key(base_url, url, self._trusted_hosts)
            return EmbedderClient(url, name, api_key if entitled else None)

        self._connect: Connect = connect or connect_with_key
        self._configured = (
            EmbedderClient(base_url, model, api_key) if connect is None else connect(base_url, model or "")
        )
        self._opened: dict[tuple[str, str], EmbedderClient] = {}
        self.current = self._configured

    @property
    def model(self) -> str | None:
        """The name of the model that queries are embedded with now."""
        return self.current.model

    async def embed_query(self, text: str) -> list[float]:
        """Return the vector of one query."""
        vector: list[float] = (await self.current.embed_query(text)).tolist()
        return vector

    def follow(self, active: ActiveSeen, asked: object, *, failed: bool) -> bool:
        """Turn to another embedder of the active model than `asked`; return whether there is one.

        `failed` says that `asked` returned no vector; otherwise its vector was of another model.
        """
        choices = self._choices(active)
        if self.current is not asked and self.current in choices:
            return True  # another recall has turned to it already
        others = [client for client in choices if client is not asked]
        if not others or (asked in choices and not failed):
            return False
        self.current = others[0]
        return True

    def _choices(self, active: ActiveSeen) -> list[EmbedderClient]:
        found = []
        near = self._configured.base_url
        if active.url is not None and is_trusted_embedder_url(near, active.url, self._trusted_hosts):
            found.append(self._opened_for(active.url.rstrip("/"), active.name))
        if self._configured.model in {None, active.name} and self._configured not in found:
            found.append(self._configured)
        return found

    def _opened_for(self, url: str, name: str) -> EmbedderClient:
        if (self._configured.base_url, self._configured.model) == (url, name):
            return self._configured
        if (url, name) not in self._opened:
            self._opened[url, name] = self._connect(url, name)
        return self._opened[url, name]

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(client.close() for client in (self._configured, *self._opened.values())))
