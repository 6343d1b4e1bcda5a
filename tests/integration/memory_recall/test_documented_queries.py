"""The query for pending rows in the manifest for KEDA leaves quarantine out."""

from pathlib import Path

from tests.integration.memory_recall.least_rights import least_rights
from tests.integration.memory_recall.workbench import Workbench
from tests.support.yaml_text import read_documents

DOCS = Path(__file__).resolve().parents[3] / "docs"


def trigger() -> str:
    """Return the query by which KEDA tells whether a pod is wanted while there is none."""
    shipped = read_documents((DOCS / "scaling" / "keda.yaml").read_text(encoding="utf-8"))
    (scaled,) = (body for body in shipped if body["kind"] == "ScaledObject")
    (found,) = (entry for entry in scaled["spec"]["triggers"] if entry["type"] == "postgresql")
    return str(found["metadata"]["query"])


async def test_the_documented_query_finds_a_row_that_is_tried_again_and_none_in_quarantine(bench: Workbench) -> None:
    """It is asked as the role that `memory roles` makes for workers, who has no more than the rights it needs."""
    query = trigger()
    async with least_rights(bench) as roles, roles.worker.connection() as worker:
        assert await worker.fetchval(query) == 0
        await bench.execute("INSERT INTO memories (content, is_sensitive) VALUES ('never embedded', true)")
        await bench.insert("refused")
        assert await worker.fetchval(query) == 1
        await bench.execute(
            "INSERT INTO memory_embedding_failures (id, text_hash, attempts, error_class, next_attempt) "
            "SELECT id, memory_index_text_hash(content), 1, 'EmbedderRejected', now() + interval '1 min' FROM memories "
            "WHERE NOT is_sensitive"
        )
        assert await worker.fetchval(query) == 1
        await bench.execute("UPDATE memory_embedding_failures SET next_attempt = 'infinity'")
        assert await worker.fetchval(query) == 0
        await bench.insert("pending")
        assert await worker.fetchval(query) == 1


async def test_kedas_query_reads_the_index_over_pending_rows_and_not_the_table(bench: Workbench) -> None:
    """It is asked every few seconds, and mostly finds nothing, for which it would have to read every row."""
    await bench.execute("INSERT INTO memories (content) SELECT 'text ' || i FROM generate_series(1, 1000) i; ANALYZE")
    async with bench.database.connection() as connection:
        await connection.execute("SET enable_seqscan = off")
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {trigger()}"))
    assert "idx_memories_embedding_pending on memories" in plan
    assert "memories_pkey" not in plan


async def test_kedas_query_wants_a_pod_for_a_recall_that_lacked_the_embedder(bench: Workbench) -> None:
    """The mark that such a recall leaves counts for a minute."""
    await bench.execute("UPDATE memory_index_state SET wanted_at = now()")
    assert await bench.value(trigger()) == 1
    await bench.execute("UPDATE memory_index_state SET wanted_at = now() - interval '61 s'")
    assert await bench.value(trigger()) == 0
