"""Roles with few rights keep them through a swap, whose columns exchange their names."""

from dataclasses import replace

import asyncpg
import pytest

from tests.integration.memory_recall.least_rights import least_rights
from tests.integration.memory_recall.swap.conftest import SwapBench


async def test_a_worker_s_role_may_write_both_columns_before_and_after_the_flip(swaps: SwapBench) -> None:
    """The standby column takes the active one's privileges when it is added."""
    async with least_rights(swaps.work) as roles:
        working = replace(swaps.work, database=roles.worker)
        await swaps.swap(flip=False)
        for stage in ("before", "after"):
            async with working.database.connection() as connection:
                for column in ("embedding", "embedding_standby"):
                    await connection.execute(f"UPDATE memories SET {column} = NULL WHERE id = -1")
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute("UPDATE memories SET content = 'x' WHERE id = -1")
            async with roles.reader.connection() as connection:
                await connection.execute("SELECT embedding, embedding_standby FROM memories")
            if stage == "before":
                await swaps.swap()


async def test_whoever_may_create_in_the_schema_of_pgvector_runs_nothing_as_another_writer(swaps: SwapBench) -> None:
    """L5: a function that fits a call better than Postgres's own one is not called while a swap is open."""
    await swaps.swap(flip=False)
    admin = await asyncpg.connect(swaps.work.database.superuser_dsn)
    await admin.execute(
        "CREATE FUNCTION public.pg_notify(text, name) RETURNS void LANGUAGE plpgsql "
        "AS 'BEGIN RAISE EXCEPTION ''called as %'', current_user; END'"
    )
    await admin.close()
    async with swaps.work.database.connection() as connection:
        given = "(array_fill(0.5::real, ARRAY[8])::halfvec)"
        await connection.execute(f"UPDATE memories SET embedding = {given} WHERE embedding IS NOT NULL")
        await connection.execute(f"INSERT INTO memories (content, embedding) VALUES ('x', {given})")
        kept = f"SELECT count(*) FROM memories WHERE embedding = {given}"
        assert await connection.fetchval(kept) == 0, "the trigger has dropped the vectors"
