"""An embedder client that switches to the active model's address, so that an application that recalls needs no restart
after a model swap.

Every recall statement returns the name and the address of the active model. If the dense leg was refused because
another model has become active, or if the embedding service failed, the client switches to the returned address, and
the recall tries once more.
"""

import asyncio
from collections.abc import Callable, Iterable

from memory_recall.embedding.address_policy import is_trusted_embedder_url
from memory_recall.embedding.client import EmbedderClient

Connect = Callable[[str, str], EmbedderClient]


class FollowingEmbedder:
    """Embeds queries with the configured embedder and, after a model swap, with the active model's. Must be closed.

    `connect` makes a client from a URL and a model's name. An address that the database names is used only if it is
    trusted: by its relation to `base_url` (see `memory_recall.embedding.address_policy`), or as one of `trusted_hosts`.
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
        self._connect: Connect = connect or (lambda url, name: EmbedderClient(url, name, api_key))
        self._configured = (
            EmbedderClient(base_url, model, api_key) if connect is None else connect(base_url, model or "")
        )
        self._trusted_hosts = frozenset(trusted_hosts)
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

    def follow(self, model: str, url: str | None, used: object, *, failed: bool) -> bool:
        """Change to an embedder of the active model other than the `used` one; return whether there is one.

        `model` is the active model's name and `url` the recorded address of its embedder. `used` is the embedder that
        got the query. `failed` says that it returned no vector; otherwise its vector was of another model.
        """
        choices = self._choices(model, url)
        if self.current is not used and self.current in choices:
            return True  # another recall has turned to it already
        others = [client for client in choices if client is not used]
        if not others or (used in choices and not failed):
            return False
        self.current = others[0]
        return True

    def _choices(self, model: str, url: str | None) -> list[EmbedderClient]:
        found = []
        near = self._configured.base_url
        if url is not None and is_trusted_embedder_url(near, url, self._trusted_hosts):
            found.append(self._opened_for(url.rstrip("/"), model))
        if self._configured.model in {None, model} and self._configured not in found:
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
