"""Memories and pools for labelling without a database."""

from memory_recall.contrib.labelling.labels import Asked, Labels
from memory_recall.contrib.labelling.store import ShownMemory
from memory_recall.errors import InvalidInput


class FakeStore:
    """Pools the memories that a test names for a question, by default the same three for each."""

    def __init__(self, *, pools: dict[str, list[int]] | None = None, hidden: set[int] | None = None) -> None:
        self.pools = pools or {}
        self.hidden = hidden or set()
        self.error: Exception | None = None
        self.embedded: list[str] = []  # the questions that pooling has sent to the embedder

    async def read(self, memory_id: int, *, user: str | None) -> ShownMemory | None:  # noqa: ARG002 - as the store has it
        if self.error is not None:
            raise self.error
        if memory_id in self.hidden:
            return None
        return ShownMemory(f"memory number {memory_id}", "facts", "a,b", "2026-01-01")

    async def pool(self, question: Asked) -> list[int]:
        if question.conv == "nobody":
            raise InvalidInput("`user_id` cannot be used", "")
        self.embedded.append(question.text)
        return self.pools.get(question.query_id, [1, 2, 3])


def asked(number: int, stratum: str = "imported") -> Asked:
    return Asked(query_id=f"q{number}", text=f"question number {number}", stratum=stratum)


def state(count: int, seed: int = 0) -> Labels:
    """A state with this many questions, none of them pooled."""
    return Labels(seed=seed).after(*(asked(number) for number in range(1, count + 1)))
