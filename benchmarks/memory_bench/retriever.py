"""What the harness asks of a retriever: one method, and a few more if it has them.

A retriever is anything with `retrieve(query, k)`, or a plain function of the same arguments. If it also has
`retrieve_in(query, k, scope)`, scoped questions go there; otherwise it is asked for everything and the harness keeps
what lies in the scope, which is fair to its ranking though not to its speed.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from memory_bench.dataset import Memory


@runtime_checkable
class Retriever(Protocol):
    """The one method that is needed."""

    def retrieve(self, query: str, k: int) -> list[int]:
        """At most `k` ids, best first."""
        ...


class Adapted:
    """A retriever with every optional hook in place."""

    def __init__(self, wrapped: Retriever | Callable[[str, int], list[int]], *, name: str | None = None) -> None:
        self._wrapped: Any = wrapped
        self._retrieve: Callable[[str, int], list[int]] = (
            wrapped.retrieve if isinstance(wrapped, Retriever) else wrapped
        )
        self.name = name or str(getattr(wrapped, "name", getattr(wrapped, "__name__", type(wrapped).__name__)))
        self._scopes: dict[int, str | None] = {}

    def build_index(self, corpus: Sequence[Memory]) -> None:
        """Hand the corpus over."""
        self._scopes = {memory.id: memory.scope for memory in corpus}
        if hasattr(self._wrapped, "build_index"):
            self._wrapped.build_index(corpus)

    def index_size_bytes(self) -> int | None:
        """The size of the index, where the retriever knows it."""
        size = getattr(self._wrapped, "index_size_bytes", None)
        return None if size is None else int(size())

    def retrieve(self, query: str, k: int, scope: str | None) -> list[int]:
        """At most `k` ids of the scope, best first."""
        if scope is None:
            return self._retrieve(query, k)[:k]
        if hasattr(self._wrapped, "retrieve_in"):
            return list(self._wrapped.retrieve_in(query, k, scope))[:k]
        everything = self._retrieve(query, len(self._scopes))
        return [one for one in everything if self._scopes.get(one) == scope][:k]

    def close(self) -> None:
        """Let go of whatever it holds."""
        if hasattr(self._wrapped, "close"):
            self._wrapped.close()
