"""What MaxSim costs a recall: the time of computing or of reading the states of 30 memories, and their size."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memory_bench.postgres import BenchmarkDatabase
from memory_bench.second_stage.maxsim import TokenStates, best, packed, unit, unpacked
from memory_bench.second_stage.reranking import Encoder
from memory_bench.second_stage.settings import STATES, States
from memory_bench.studies.questions import LabelledSet, scopes

MEMORIES = 30
QUESTIONS = 200
_WARM_UP = 10
_BYTES_OF_A_HALF = 2
# The states are kept outside of the row and not compressed: they do not compress.
_CREATE = """
CREATE TABLE token_states (memory_id bigint PRIMARY KEY, exact bytea NOT NULL, signs bytea NOT NULL);
ALTER TABLE token_states ALTER exact SET STORAGE EXTERNAL, ALTER signs SET STORAGE EXTERNAL"""


@dataclass(frozen=True, slots=True)
class Costs:
    """Median milliseconds for `MEMORIES` memories, and bytes a memory, by the kind of states where it matters.

    `computed` is the time of computing the states with the model and scoring them, `stored` the time of reading them
    from Postgres and scoring them. The query's states are not counted: they come with its vector.
    """

    computed: float
    stored: Mapping[States, float]
    size: Mapping[States, float]


def measure_costs(labelled: LabelledSet, encoder: Encoder, *, seed: int) -> Costs:
    """Measure what MaxSim over the first memories of 200 of the set's questions costs."""
    first = dict(_first(labelled))
    drawn = np.random.default_rng(seed).permutation(sorted(first))[:QUESTIONS].tolist()
    chosen = [*drawn[:_WARM_UP], *drawn]
    queries = list(map(unit, encoder.states([labelled.dataset.queries[number].text for number in chosen])))
    stored = {
        one.id: unit(states)
        for one, states in zip(
            labelled.dataset.memories, encoder.states([one.content for one in labelled.dataset.memories]), strict=True
        )
    }
    texts = {one.id: one.content for one in labelled.dataset.memories}
    computed = []
    for query, number in zip(queries, chosen, strict=True):
        began = time.perf_counter()
        for states in encoder.states([texts[one] for one in first[number]]):
            best(query @ unit(states).T)
        computed.append((time.perf_counter() - began) * 1e3)
    database = BenchmarkDatabase()
    try:
        database.fill(labelled.dataset.memories, labelled.embedded)
        _store(database, stored)
        reading = {
            one: [_read(database, one, query, first[number]) for query, number in zip(queries, chosen, strict=True)]
            for one in STATES
        }
    finally:
        database.close()
    return Costs(
        float(np.median(computed[_WARM_UP:])),
        {one: float(np.median(found[_WARM_UP:])) for one, found in reading.items()},
        sizes([len(states) for states in stored.values()], next(iter(stored.values())).shape[1]),
    )


def sizes(tokens: Sequence[int], dimensions: int) -> dict[States, float]:
    """Return the mean bytes of a memory's states, exact ones as halves and signs as bits."""
    mean = float(np.mean(tokens))
    return {"exact": mean * dimensions * _BYTES_OF_A_HALF, "signs": mean * -(-dimensions // 8)}


def _first(labelled: LabelledSet) -> Iterator[tuple[int, list[int]]]:
    """Yield the number of each question and the ids of its first memories."""
    for scope in scopes(labelled.dataset):
        memories = scope.memories(labelled.dataset)
        for number, asked in zip(scope.numbers, scope.questions(labelled), strict=True):
            yield number, [memories[place].id for place in asked.first(MEMORIES)]


def _store(database: BenchmarkDatabase, stored: Mapping[int, TokenStates]) -> None:
    rows = [(one, states.astype(np.float16).tobytes(), packed(states)) for one, states in stored.items()]
    pool = database.pool("plain")

    async def work() -> None:
        await pool.execute(_CREATE)
        await pool.executemany("INSERT INTO token_states VALUES ($1, $2, $3)", rows)
        await pool.execute("ANALYZE token_states")

    database.wait(work())


def _read(database: BenchmarkDatabase, kind: States, query: TokenStates, memories: Sequence[int]) -> float:
    """Return the milliseconds of reading and scoring the states of some memories."""
    dimensions = query.shape[1]
    statement = f"SELECT {kind} AS states FROM token_states WHERE memory_id = ANY($1)"  # noqa: S608  (one of two names)
    began = time.perf_counter()
    for row in database.wait(database.pool("plain").fetch(statement, list(memories))):
        if kind == "signs":
            states = unpacked(row["states"], dimensions)
        else:
            states = np.frombuffer(row["states"], dtype=np.float16).reshape(-1, dimensions).astype(np.float32)
        best(query @ states.T)
    return (time.perf_counter() - began) * 1e3
