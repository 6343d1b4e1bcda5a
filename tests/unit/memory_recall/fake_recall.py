"""A recall without a database, for what wraps recalls."""

from collections.abc import Sequence
from typing import Any

from memory_recall.schema.columns.keys import MemoryId
from memory_recall.search.options import RecallOptions
from memory_recall.search.query import FurtherWords
from memory_recall.search.recall import Recall, Recalled, Request
from memory_recall.search.result import Evidence, RecalledMemory, RecallResult, Timings


class FakeRecall(Recall):
    """Finds given memories in their order; it remembers its requests and the further words of each."""

    def __init__(self, found: Sequence[RecalledMemory] = (), **options: Any) -> None:
        made = RecallOptions(**options)
        super().__init__(made, made.embedding_budget)
        self.found = found
        self.requests: list[Request] = []
        self.further: list[FurtherWords | None] = []

    pools = ()

    async def answer(self, request: Request) -> Recalled:
        self.requests.append(request)
        self.further.append(await request.further() if request.further else None)
        page = tuple(self.found[request.query.offset : request.query.offset + request.query.limit])
        result = RecallResult(page, request.query.mode, None, Timings(1.0))
        return Recalled(result, [{"id": memory.id} for memory in page] if request.own_columns else ())


def memory(
    number: MemoryId, content: str, *, sensitive: Any = False, superseded_by: MemoryId | None = None
) -> RecalledMemory:
    """Make a memory of which only what is given matters."""
    evidence = Evidence(None, None, None, None)
    return RecalledMemory(number, content, None, None, 0.5, sensitive, 1.0, None, None, None, evidence, superseded_by)
