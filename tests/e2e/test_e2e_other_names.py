"""A table with a uuid key, other names and an `embedding` of its own is indexed, recalled from, and left as it was."""

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import open_tenant
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import INDEX, Tenant
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.finding("database F6")]
# What another program has made, down to a name with a space and a table name with capitals.
TABLE = """
CREATE SCHEMA app;
CREATE TABLE app."Notes" (
    uuid uuid PRIMARY KEY DEFAULT gen_random_uuid(), title text, body text, "User Id" integer,
    "isSecret" boolean NOT NULL DEFAULT false, "deletedAt" timestamptz, "createdAt" timestamptz NOT NULL DEFAULT now(),
    embedding real[] NOT NULL DEFAULT '{1, 2, 3}',
    words tsvector GENERATED ALWAYS AS (to_tsvector('english', coalesce(title, '') || ' ' || coalesce(body, ''))) STORED
);
CREATE INDEX ON app."Notes" USING gin (words);
INSERT INTO app."Notes" (title, body, "User Id", "isSecret") VALUES
    ('Cellar', 'The boiler was bled in October.', 7, false), ('Kitchen', 'The kettle was descaled.', 7, false),
    ('Safe', 'The combination is 4711.', 7, true), ('Cellar', 'The furnace needs a new valve.', 8, false);
"""
COLUMNS = {
    "id": "uuid", "content": ["title", "body"], "userId": "User Id", "sensitive": "isSecret",
    "deletedAt": "deletedAt", "createdAt": "createdAt", "searchVector": "words",
    "embedding": "memory_embedding",
}  # fmt: skip
VECTORS = 'SELECT count(*) FILTER (WHERE memory_embedding IS NOT NULL) FROM app."Notes"'


def schema(tenant: Tenant) -> str:
    """Return the tables of the tenant's own schema as pg_dump writes them."""
    dump = ("pg_dump", "--schema-only", "--no-owner", "--schema=app", tenant.database)
    lines = tenant.cluster.kubectl(
        "-n", tenant.postgres.namespace, "exec", tenant.postgres.primary(), "-c", "postgres", "--", *dump
    )
    return "\n".join(line for line in lines.splitlines() if not line.startswith(("\\restrict", "\\unrestrict")))


def rows_of(tenant: Tenant) -> str:
    """Return every row with the program's own columns, in the order of the key."""
    columns = 'uuid, title, body, "User Id", "isSecret", "deletedAt", "createdAt", words, embedding'
    return tenant.sql(f'SELECT ({columns})::text FROM app."Notes" ORDER BY uuid')


@pytest.fixture(scope="module")
def before(platform: Platform, request: pytest.FixtureRequest) -> Iterator[tuple[Tenant, str]]:
    """A tenant with an index over such a table, and what its schema was before."""
    for tenant in open_tenant(platform, request, "names"):
        tenant.as_owner(TABLE)
        found = schema(tenant)
        tenant.start_toolbox()
        names = {"database__table": "app.Notes", "database__columns": COLUMNS}
        tenant.apply_index(deletionPolicy="Delete", **names)
        tenant.wait_ready()
        yield tenant, found


def test_it_is_ready_and_every_row_but_the_secret_one_has_a_vector(before: tuple[Tenant, str]) -> None:
    tenant = before[0]
    counted = tenant.index()["status"]["rows"]
    assert (counted["total"], counted["embedded"], counted["sensitive"]) == (4, 3, 1)
    assert tenant.sql(VECTORS) == "3"


def test_a_recall_answers_by_meaning_with_the_owners_rows_alone(before: tuple[Tenant, str]) -> None:
    tenant = before[0]
    asked = ("recall", "maintenance of the boiler in autumn", "--user", "7", "--mode", "dense")
    found = tenant.memory(*asked, settings={"MEMORY_TABLE": "app.Notes"})
    assert found["degraded"] is False
    assert found["memories"][0]["content"] == "Cellar\n\nThe boiler was bled in October."
    assert {memory["owner"] for memory in found["memories"]} == {"7"}


def test_an_edit_of_either_text_is_embedded_anew(before: tuple[Tenant, str]) -> None:
    tenant = before[0]
    edit = (
        """UPDATE app."Notes" SET title = 'Attic' WHERE body LIKE 'The kettle%' RETURNING memory_embedding IS NULL;"""
    )
    assert "t" in tenant.as_owner(edit).split(), "the vector of the former text went with it"
    eventually(lambda: tenant.sql(VECTORS), lambda count: count == "3", what="the edited row embedded anew")


def test_another_name_is_refused_with_the_way_and_the_recorded_one_goes_on(before: tuple[Tenant, str]) -> None:
    tenant = before[0]
    patch = '{"spec": {"database": {"columns": {"userId": ""}}}}'
    tenant.kubectl("patch", "memoryindex", INDEX, "--type=merge", "--patch", patch)
    refused = tenant.wait_condition("SchemaReady", "SchemaUnsupported")
    assert "user_id of" in refused.message
    assert "was recorded as User Id, not as absent" in refused.message
    assert "memory migrate --to base" in refused.message
    back = '{"spec": {"database": {"columns": {"userId": "User Id"}}}}'
    tenant.kubectl("patch", "memoryindex", INDEX, "--type=merge", "--patch", back)
    tenant.wait_ready()


def test_removal_leaves_the_schema_and_every_row_as_they_were(before: tuple[Tenant, str]) -> None:
    tenant, former_schema = before
    former_rows = rows_of(tenant)
    tenant.kubectl("delete", "memoryindex", INDEX, "--timeout=240s")
    assert schema(tenant) == former_schema
    assert len(former_rows.splitlines()) == 4
    assert rows_of(tenant) == former_rows
