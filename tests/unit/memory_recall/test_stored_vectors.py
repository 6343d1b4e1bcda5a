"""An embedder whose digest cannot tell whether it made the stored vectors: how the comparison with them ends."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import numpy as np
import pytest

from memory_recall.embedding.canary import Canary
from memory_recall.embedding.served_model import ServedModel
from memory_recall.embedding.wire import EmbeddedBatch
from memory_recall.errors import ModelMismatch
from memory_recall.indexing.document_embedder import DocumentEmbedder
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.indexing.stored_vectors import compare_with_stored
from memory_recall.indexing.stored_vectors_sql import StoredVector
from memory_recall.postgres.connection import Connection
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.schema.table import MemoryTable

SERVED = ServedModel("m", 2, str(Canary.of([[1.0, 0.0]] * 3)))
RECORDED = RecordedModel(1, "m", "sha256:aa", 2)
TABLE = cast("MemoryTable", None)  # no statement runs


class Embedder:
    """Gives each row the vector (0, 1), or none where rows always change before they are sent."""

    def __init__(self, *, changing: bool = False) -> None:
        self.changing = changing
        self.asked = 0

    async def embed_rows(self, rows: list[PendingRow]) -> tuple[list[PendingRow], EmbeddedBatch | None]:
        self.asked += 1
        assert self.asked < 100, "it goes on for ever"
        if self.changing:
            return [], None
        return rows, EmbeddedBatch(np.array([[0.0, 1.0]] * len(rows), dtype=np.float32), 1)


async def compare(embedder: Embedder, text: str, vector: list[float]) -> list[str]:
    """Compare with the one row that is stored; return which statements ran."""
    ran: list[str] = []

    async def run(work: Callable[[Connection], Awaitable[Any]]) -> Any:
        ran.append(cast("Any", work).func.__name__)
        return [StoredVector(PendingRow(1, text, "hash"), vector)]

    await compare_with_stored(run, TABLE, RECORDED, SERVED, cast("DocumentEmbedder", embedder))
    return ran


async def test_rows_that_always_change_before_they_are_compared_end_the_comparison_and_record_nothing() -> None:
    embedder = Embedder(changing=True)
    with pytest.raises(ModelMismatch, match="is not known") as ended:
        await compare(embedder, "short", [0.0, 1.0])
    assert embedder.asked == 10
    assert "again" in ended.value.remedy


@pytest.mark.parametrize("text", ["short", "long" * 200])
async def test_a_refusal_by_the_vector_of_a_long_text_says_that_it_may_have_been_truncated(text: str) -> None:
    """Two embedders of one model may truncate in different places; the way out is a swap to another name."""
    with pytest.raises(ModelMismatch, match=r"cosine 0\.000") as refusal:
        await compare(Embedder(), text, [1.0, 0.0])
    assert ("truncates" in refusal.value.message) == (text != "short")
    assert "another name" in refusal.value.remedy


async def test_what_the_embedder_says_is_recorded_once_a_stored_vector_is_alike() -> None:
    assert await compare(Embedder(), "short", [0.0, 2.0]) == ["read_stored_vectors", "replace_digest"]
