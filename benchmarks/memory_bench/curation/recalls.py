"""Recalls every question of the set before the proposals are applied, with them, and after they are undone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory_bench.curation.truth import PairOfIds, Truth
from memory_bench.harness.dataset import Query
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.postgres import BenchmarkDatabase
from memory_recall import EVERYONE, EmbeddedQuery, HybridRecall, RecallOptions, RecallQuery
from memory_recall.contrib.curation.decisions import Judgement
from memory_recall.contrib.curation.journal_sql import apply_proposals, undo
from memory_recall.contrib.curation.proposal_file import proposal_from
from memory_recall.evaluation.judgements import RELEVANT_FROM
from memory_recall.postgres.connection import Pool
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.revisions import require_schema

DEPTH = 10
_TIME_BUDGET = 60.0  # seconds; what is measured here is an order

Answer = tuple[tuple[MemoryId, MemoryId | None, float], ...]
"""The memories of a recall in order: id, successor and score."""


@dataclass(frozen=True, slots=True)
class Rankings:
    """The answers to all questions without, with and after curation; `active` counts what is not undone at the end."""

    before: list[Answer]
    curated: list[Answer]
    after: list[Answer]
    active: int

    @property
    def undone(self) -> str:
        """Whether everything stands as before: "all", or how many questions are answered otherwise."""
        changed = sum(one != other for one, other in zip(self.before, self.after, strict=True))
        return "all" if not changed and not self.active else f"{changed} questions differ, {self.active} steps stand"


def recall_with_and_without(
    database: BenchmarkDatabase, queries: Sequence[Query], embedded: EmbeddedSet, proposed: Sequence[Judgement]
) -> Rankings:
    """Apply the proposals to the filled database, recall every question with and without them, and undo them."""
    pool = database.pool("plain")

    def ask() -> list[Answer]:
        return database.wait(_answers(pool, queries, embedded))

    before = ask()
    database.wait(_apply(pool, proposed))
    curated = ask()
    active = database.wait(_undo(pool))
    return Rankings(before, curated, ask(), active)


async def _answers(pool: Pool, queries: Sequence[Query], embedded: EmbeddedSet) -> list[Answer]:
    recall = HybridRecall(pool, None, RecallOptions(time_budget=_TIME_BUDGET))
    found = []
    for query, vector in zip(queries, embedded.queries.tolist(), strict=True):
        asked = RecallQuery(query.text, user_id=EVERYONE, limit=DEPTH, vector=EmbeddedQuery(vector, embedded.model))
        result = await recall.recall(asked)
        if result.reason is not None:
            raise RuntimeError(f"a recall degraded to its lexical leg ({result.reason})")
        found.append(tuple((one.id, one.superseded_by, one.rank) for one in result.memories))
    await recall.close()
    return found


async def _apply(pool: Pool, proposed: Sequence[Judgement]) -> None:
    async with pool.acquire() as connection:
        table = await require_schema(connection, "memories")
        # The halves may propose two successors of one memory; then the second one is skipped.
        await apply_proposals(connection, table, [proposal_from(one) for one in proposed])


async def _undo(pool: Pool) -> int:
    async with pool.acquire() as connection:
        await undo(connection, await require_schema(connection, "memories"), run=None, everything=True)
        return int(await connection.fetchval("SELECT count(*) FROM memory_supersessions WHERE undone_at IS NULL"))


def newer_first(queries: Sequence[Query], answers: Sequence[Answer], truth: Truth) -> tuple[int, int]:
    """Return how many questions show the newer memory of each pair before the older one, and how many could.

    A question counts if a memory that replaces another one is relevant to it, and one of the two is among the first ten
    memories. Both must stand in the right order in all such pairs; a memory that is absent stands last.
    """
    replaced = [pair for pair, kind in truth.kinds.items() if kind == "replaces"]
    right = counted = 0
    for query, answer in zip(queries, answers, strict=True):
        places = {memory: place for place, (memory, _, _) in enumerate(answer)}
        shown = [pair for pair in replaced if _is_relevant(query, pair[1]) and places.keys() & set(pair)]
        counted += bool(shown)
        right += bool(shown) and all(_in_order(pair, places) for pair in shown)
    return right, counted


def _in_order(pair: PairOfIds, places: Mapping[MemoryId, int]) -> bool:
    older, newer = (places.get(memory, DEPTH) for memory in pair)
    return newer < older


def _is_relevant(query: Query, memory: int) -> bool:
    return memory in query.relevant or query.grades.get(memory, 0) >= RELEVANT_FROM
