"""A recall that searches replicas, and reads what they found again on the primary.

A replica may lag behind, and would then give away a text whose memory has just become sensitive. Therefore the memories
that a replica has found are read again on the primary before anything of them leaves. An answer of the primary itself
is not read again, so that the pool of the recall may lead to all instances.
"""

from collections.abc import Mapping
from typing import Any

from memory_recall.postgres.connection import Pool
from memory_recall.search.hybrid_recall import Finding, HybridRecall
from memory_recall.search.recall import Recalled, Request, WrappingRecall
from memory_recall.search.sql.execution import read_again


class ReplicaRecall(WrappingRecall):
    """Reads again on the primary what a replica found. `primary` is a pool of connections to it, which stays open."""

    def __init__(self, recall: HybridRecall, primary: Pool) -> None:
        super().__init__(recall, recall.reserved)
        self._recall = recall
        self._primary = primary

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Those of the wrapped recall, and that of the primary."""
        return (*self._recall.pools, self._primary)

    async def answer(self, request: Request) -> Recalled:
        """Answer a query with the memories as they are on the primary.

        Raises:
            ReplicaRefused: `primary` leads to a replica, too.
        """
        finding = await self._recall.find(request)
        again = await self._read_again(finding) if finding.answer.from_replica else None
        recalled = await self._recall.shown(finding, again)
        self._recall.note_demand(finding, self._primary)
        return recalled

    async def _read_again(self, finding: Finding) -> list[Mapping[str, Any]]:
        found = finding.answer.found
        if not found:
            return []
        async with self._borrowed(self._primary) as connection:
            return await read_again(connection, finding.plan, found)
