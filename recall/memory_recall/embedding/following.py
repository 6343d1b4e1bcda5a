"""A client that goes on with the active model's embedder after a model swap, without a restart of its application.

Every recall statement returns the name and the address of the active model. If the dense leg was refused because
another model has become active, or if the embedding service failed, the client switches to this address, and the recall
tries once more. To a third-party embedder it switches only if the application has given it a client of that
embedder: an address in the database must never send queries out of the cluster.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from memory_recall.embedding.address_policy import is_trusted_embedder_url, may_have_key, may_receive_texts
from memory_recall.embedding.api_key import ApiKey
from memory_recall.embedding.apis import OWN_OPTIONS, EmbedderOptions
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.external_client import ExternalEmbedder, embedder_client


class FollowingEmbedder:
    """Embeds queries with the configured embedder and, after a swap, with the active model's. It must be closed.

    An address from the database is used only if `memory_recall.embedding.address_policy` trusts it, given `base_url`
    and `trusted_hosts`. The API key is sent only to the host of `base_url` and to `trusted_hosts`; the path of a file
    in its place has the key read for each request.

    `options` are those of the configured embedder. An embedder at another address must be a memory-embedder; of any
    other, answers are refused, unless `others` holds a client of it. Each of `others` is used while its model is
    active and no memory-embedder of it is recorded, and closed together with this embedder. `query_egress` says
    whether texts may be sent to addresses beyond the cluster. `ca_file` holds certificates of authorities of one's
    own, by which all embedders are verified, too.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: ApiKey | None = None,
        *,
        options: EmbedderOptions = OWN_OPTIONS,
        query_egress: bool = False,
        ca_file: Path | None = None,
        trusted_hosts: Iterable[str] = (),
        others: Iterable[ExternalEmbedder] = (),
    ) -> None:
        self._trusted_hosts = frozenset(trusted_hosts)
        self._api_key = api_key
        self._query_egress = query_egress
        self._ca_file = ca_file
        self._configured = embedder_client(
            base_url, model, api_key, options=options, query_egress=query_egress, ca_file=ca_file
        )
        self._others = {other.model: other for other in others}
        self._opened: dict[tuple[str, str], EmbedderClient | ExternalEmbedder] = {}
        self.current: EmbedderClient | ExternalEmbedder = self._configured

    @property
    def model(self) -> str | None:
        """The name of the model that queries are embedded with now."""
        return self.current.model

    @property
    def hosted(self) -> bool:
        """Whether queries leave the cluster now."""
        return self.current.hosted

    async def embed_query(self, text: str) -> list[float]:
        """Return the vector of one query."""
        vector: list[float] = (await self.current.embed_query(text)).tolist()
        return vector

    def follow(self, model: str, url: str | None, used: object, *, failed: bool) -> bool:
        """Change to another embedder of the active model; return whether one was found that differs from `used`.

        `model` is the active model's name, and `url` the recorded address of the active model's embedder. `used` is the
        embedder that the query was sent to. `failed` is True if that embedder returned no vector, and False if its
        vector came from another model or from another file of the same model. If `failed` is False and `used` is
        already the embedder at the recorded address, nothing is changed.
        """
        choices = self._choices(model, url)
        if self.current is not used and self.current in choices:
            return True  # another recall has turned to it already
        others = [client for client in choices if client is not used]
        if not others or (used is choices[0] and not failed):
            return False
        self.current = others[0]
        return True

    def _choices(self, model: str, url: str | None) -> list[EmbedderClient | ExternalEmbedder]:
        if url is None and model in self._others:
            return [self._others[model]]
        found: list[EmbedderClient | ExternalEmbedder] = []
        near = self._configured.base_url
        if (
            url is not None
            and is_trusted_embedder_url(near, url, self._trusted_hosts)
            and may_receive_texts(url, egress=self._query_egress)
        ):
            found.append(self._opened_for(url.rstrip("/"), model))
        if self._configured.model in {None, model} and self._configured not in found:
            found.append(self._configured)
        return found

    def _opened_for(self, url: str, name: str) -> EmbedderClient | ExternalEmbedder:
        if self._configured.base_url == url and self._configured.model in {None, name}:
            return self._configured
        if (url, name) not in self._opened:
            entitled = may_have_key(self._configured.base_url, url, self._trusted_hosts)
            key = self._api_key if entitled else None
            self._opened[url, name] = EmbedderClient(
                url, name, key, query_egress=self._query_egress, ca_file=self._ca_file
            )
        return self._opened[url, name]

    async def close(self) -> None:
        """Close all connections."""
        clients = [self._configured, *self._opened.values(), *self._others.values()]
        await asyncio.gather(*(client.close() for client in clients))
