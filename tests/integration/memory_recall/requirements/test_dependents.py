"""A view over a vector column is named before anything is changed, since the column cannot be dropped beside it."""

import re
from collections.abc import Callable

import asyncpg
import pytest

from memory_recall.errors import SchemaUnsupported
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, remove
from memory_recall.schema.requirements.dependents import require_no_dependents
from memory_recall.schema.rules.differences import describe_differences
from memory_recall.schema.table import describe
from tests.integration.memory_recall.workbench import Workbench

_VECTOR = "array_fill(0, ARRAY[8])::halfvec"
_DEPENDENTS = {
    "view public.read": "CREATE VIEW read AS SELECT * FROM memories",
    "materialized view public.kept": "CREATE MATERIALIZED VIEW kept AS SELECT id, embedding FROM memories",
    "policy near on table public.memories": (f"CREATE POLICY near ON memories USING (embedding <=> {_VECTOR} < 1)"),
    "function public.first()": (
        "CREATE FUNCTION first() RETURNS halfvec BEGIN ATOMIC SELECT embedding FROM memories LIMIT 1; END"
    ),
    "trigger of_others on table public.memories": (
        "CREATE TRIGGER of_others AFTER UPDATE OF embedding ON memories "
        "FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    ),
}


@pytest.mark.parametrize("name", _DEPENDENTS)
async def test_the_additions_are_not_removed_while_something_depends_on_a_vector_column(
    bench: Workbench, request_for: Callable[..., MigrationRequest], name: str
) -> None:
    await bench.execute(_DEPENDENTS[name])
    with pytest.raises(SchemaUnsupported, match=re.escape(f": {name}. ")):
        await remove(DsnText(bench.database.dsn), request_for())
    async with bench.database.connection() as connection:
        assert await describe_differences(connection, await describe(connection, "memories")) == ""
        with pytest.raises(asyncpg.DependentObjectsStillExistError):
            await connection.execute("ALTER TABLE memories DROP COLUMN embedding")


async def test_nothing_that_postgres_drops_with_a_vector_column_is_named(
    bench: Workbench, request_for: Callable[..., MigrationRequest]
) -> None:
    await bench.execute("CREATE INDEX of_others ON memories (id) WHERE embedding IS NOT NULL")
    await bench.execute("ALTER TABLE memories ADD CHECK (vector_dims(embedding) = 8)")
    await bench.execute("CREATE VIEW read AS SELECT id, content FROM memories")
    async with bench.database.connection() as connection:
        await require_no_dependents(connection, await describe(connection, "memories"), ["embedding"])
    await remove(DsnText(bench.database.dsn), request_for())
