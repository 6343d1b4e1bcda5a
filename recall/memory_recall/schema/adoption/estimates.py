"""Estimates what an adoption costs: space, time, and what becomes of the user's own updates."""

from dataclasses import dataclass

from memory_recall.schema.adoption.observations import TableObservation, TextObservation

CHARACTERS_A_TOKEN = 4  # of a text in a Latin script; of other scripts fewer
TEXTS_A_SECOND = 30  # embedded by all-MiniLM-L6-v2 on two cores of a CPU, texts of 120 tokens
VECTORS_A_SECOND = 1000  # built into an index that fits maintenance_work_mem, of 1,024 dimensions
PROPOSED_FILLFACTOR = 85
OFTEN = 10  # a table is updated often if it had an update for this many of its rows, or for fewer
_PAGE = 8150  # bytes of a page of the index beside its header
_VECTOR_HEADER = 8  # bytes


@dataclass(frozen=True, slots=True)
class Costs:
    """What is added to the database and how long it takes, as estimated from the number of rows.

    `vector_bytes` are added to the rows and `index_bytes` are those of the vector index. `word_bytes` are added by a
    search column with its index, about as much as the texts themselves. The seconds are those of embedding all texts
    and of building the index.
    """

    rows: int
    vector_bytes: int
    index_bytes: int
    word_bytes: int
    embedding_seconds: float
    index_seconds: float


@dataclass(frozen=True, slots=True)
class Updates:
    """The updates of a table's rows so far, of which `hot` touched no index, and the fillfactor that keeps them so.

    `proposed` is None where none is proposed.
    """

    updates: int
    hot: int
    fillfactor: int
    since: str | None
    proposed: int | None


def estimate_costs(seen: TableObservation, texts: TextObservation, dimensions: int, m: int) -> Costs:
    """Estimate the costs of an adoption for vectors of so many dimensions and an HNSW index of `m` neighbours.

    Rows that are sensitive or deleted, or have no text, get no vector; their share is that of the sample.
    """
    share = max(texts.texts - texts.sensitive - texts.deleted, 0) / texts.rows if texts.rows else 1.0
    embedded = round(seen.rows * share)
    vectors_a_page = max(1, _PAGE // (2 * dimensions + 12 * m + 96))
    return Costs(
        rows=embedded,
        vector_bytes=embedded * (2 * dimensions + _VECTOR_HEADER),
        index_bytes=embedded * 8192 // vectors_a_page,
        word_bytes=round(seen.rows * texts.mean_bytes),
        embedding_seconds=embedded / TEXTS_A_SECOND,
        index_seconds=embedded / VECTORS_A_SECOND,
    )


def judge_updates(seen: TableObservation) -> Updates:
    """Judge the updates so far: rows that are updated often need room on their pages for their next versions."""
    often = seen.updates > 0 and seen.updates * OFTEN >= seen.rows
    proposed = PROPOSED_FILLFACTOR if often and seen.fillfactor > PROPOSED_FILLFACTOR else None
    return Updates(seen.updates, seen.hot_updates, seen.fillfactor, seen.counting_since, proposed)
