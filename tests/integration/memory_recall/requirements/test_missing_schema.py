"""A name of a table whose dot makes its beginning a schema that does not exist is refused with what to do about it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from memory_recall.errors import SchemaUnsupported
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.requirements.faults import messages, remedies
from memory_recall.schema.revisions import HEAD_REVISION, require_schema
from memory_recall.status import inspect
from tests.integration.conftest import Database

NAMED = r'no schema "notes" for a table "v2"; the dot in notes\.v2'


@pytest.mark.finding("database F19")
async def test_a_table_in_a_schema_that_does_not_exist_is_refused_with_the_dot_and_a_remedy_before_anything_is_done(
    database: Database, request_for: Callable[..., MigrationRequest]
) -> None:
    request = replace(request_for(), table="notes.v2")
    with pytest.raises(SchemaUnsupported, match=NAMED) as refused:
        await migrate(DsnText(database.dsn), request)
    assert "MEMORY_TABLE" in refused.value.remedy
    async with database.connection() as connection:
        with pytest.raises(SchemaUnsupported, match=NAMED):
            await require_schema(connection, "notes.v2")
        faults = (await inspect(connection, "notes.v2")).faults
        assert "the dot in notes.v2" in messages(faults)
        assert "Create the schema" in remedies(faults)
        await connection.execute("CREATE SCHEMA notes")
    assert (await migrate(DsnText(database.dsn), request)).revision == HEAD_REVISION
