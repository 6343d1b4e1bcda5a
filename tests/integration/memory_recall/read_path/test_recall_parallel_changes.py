"""What changes while a recall of a large table is under way: rows, models, the schema, the connection."""

from typing import Any

import pytest

from memory_recall.errors import DatabaseUnreachable
from memory_recall.search.result import Degraded
from memory_recall.search.sql.visibility import Everyone
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.splitting import Fetched, judged
from tests.integration.memory_recall.read_path.vectors import axis

MASKED = "[SENSITIVE - use secret_get(id={})]"


@pytest.mark.parametrize(
    "change", ["deleted_at = now()", "user_id = 'bo'"], ids=["deleted", "out of the filter's reach"]
)
async def test_memories_that_stop_matching_between_legs_and_fusion_are_left_out(
    filled: Any, embedder: Any, fetched: Fetched, change: str
) -> None:
    """The fusion statement checks the filters and the deletion of each row again."""
    gone = await filled.add("zfs scrub", vector=axis(1.0), user_id="ana", importance=1.0)
    recall = filled.recalling(embedder)
    assert (await recall.recall(make_query("zfs scrub", user_id="ana"))).ids[0] == gone

    async def go() -> None:
        await filled.pool.execute(f"UPDATE memories SET {change} WHERE id = $1", gone)

    fetched.before_fusion = go
    result = await recall.recall(make_query("zfs scrub", user_id="ana"))
    assert gone not in result.ids
    assert result.ids
    assert fetched.split


async def test_memories_that_become_sensitive_between_legs_and_fusion_are_masked_and_found_by_nobody_else(
    filled: Any, embedder: Any, fetched: Fetched
) -> None:
    """It may have been searched before it became sensitive; its content does not leave the database afterwards."""
    secret = await filled.add("zfs scrub hunter3", vector=axis(1.0), importance=1.0, user_id="ana")

    async def hide() -> None:
        await filled.pool.execute("UPDATE memories SET is_sensitive = true WHERE id = $1", secret)

    async def show() -> None:
        await filled.pool.execute(
            "UPDATE memories SET is_sensitive = false, embedding = $2::real[]::halfvec WHERE id = $1",
            secret,
            axis(1.0),
        )

    fetched.before_fusion = hide
    for user, found in (("ana", True), (Everyone(reader="ana"), True), (Everyone(reader="bo"), False)):
        await show()
        result = await filled.recalling(embedder).recall(make_query("zfs scrub", user_id=user))
        assert "hunter3" not in repr(result)
        assert [one.content for one in result.memories if one.id == secret] == [MASKED.format(secret)] * found
        assert fetched.split


@pytest.mark.parametrize("late", [False, True], ids=["before", "between legs and fusion"])
async def test_another_model_s_vectors_take_no_part(filled: Any, embedder: Any, fetched: Fetched, late: bool) -> None:
    """A swap leaves the lexical order, at whichever moment it comes."""
    lexical = (await filled.recalling(embedder).recall(make_query("zfs scrub", mode="lexical"))).ids
    fetched.sessions.clear()

    async def swap() -> None:
        await filled.pool.execute("UPDATE memory_index_models SET name = 'another'")

    if late:
        fetched.before_fusion = swap
    else:
        await swap()
    result = await filled.recalling(embedder).recall(make_query("zfs scrub"))
    assert result.reason is Degraded.MODEL_MISMATCH
    assert result.ids == lexical
    assert fetched.split


async def test_cosines_of_another_model_s_vectors_take_no_part(filled: Any, embedder: Any, fetched: Fetched) -> None:
    """Not even where the lexical leg alone saw the other model, and the first is active again when both are fused."""
    lexical = (await filled.recalling(embedder).recall(make_query("zfs scrub", mode="lexical"))).ids

    async def swap(name: str) -> None:
        await filled.pool.execute("UPDATE memory_index_models SET name = $1", name)

    async def swap_after_dense(_: Any) -> None:
        await fetched.dense_done.wait()
        await swap("another")

    active = await filled.pool.fetchval("SELECT name FROM memory_index_models")
    fetched.before_lexical, fetched.before_fusion = swap_after_dense, lambda: swap(active)
    result = await filled.recalling(embedder).recall(make_query("zfs scrub"))
    assert result.reason is Degraded.MODEL_MISMATCH
    assert result.ids == lexical


@pytest.mark.parametrize("before", ["both legs", "the lexical leg"])
async def test_a_refused_dense_leg_leaves_the_lexical_order(
    filled: Any, embedder: Any, fetched: Fetched, before: str
) -> None:
    """The schema changes after the recall has read it."""
    recall = filled.recalling(embedder)
    lexical = (await recall.recall(make_query("zfs scrub", mode="lexical"))).ids

    async def rename(_: Any = None) -> None:
        fetched.before_lexical = None
        await fetched.dense_done.wait()
        await filled.pool.execute("ALTER TABLE memories RENAME COLUMN embedding TO gone")

    if before == "the lexical leg":
        fetched.before_lexical = rename
    else:
        fetched.dense_done.set()
        await rename()
    result = await recall.recall(make_query("zfs scrub"))
    assert result.reason is Degraded.DENSE_FAILED
    assert result.ids == lexical


async def test_a_column_that_disappears_after_the_legs_does_not_change_the_answer(
    filled: Any, embedder: Any, fetched: Fetched
) -> None:
    """The answer is that of the moment at which the legs ran: fusion reads no vector."""
    recall = filled.recalling(embedder)
    expected = judged(await recall.recall(make_query("zfs scrub")))

    async def rename() -> None:
        await filled.pool.execute("ALTER TABLE memories RENAME COLUMN embedding TO gone")

    fetched.before_fusion = rename
    result = await recall.recall(make_query("zfs scrub"))
    assert result.reason is None
    assert judged(result) == expected


async def test_a_session_that_dies_during_its_leg_is_an_error_and_returns_both_connections(
    filled: Any, embedder: Any, fetched: Fetched
) -> None:
    """Both connections go back to the pool, and the next recall is answered."""

    async def die(connection: Any) -> None:
        fetched.before_lexical = None
        await filled.pool.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())

    recall = filled.recalling(embedder)
    await recall.recall(make_query("zfs scrub"))
    fetched.before_lexical = die
    with pytest.raises(DatabaseUnreachable):
        await recall.recall(make_query("zfs scrub"))
    assert filled.pool.get_idle_size() == filled.pool.get_size()
    assert (await recall.recall(make_query("zfs scrub"))).reason is None
