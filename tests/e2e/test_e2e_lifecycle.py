"""The main job: an existing store gets an index by one object, keeps it fresh, and can be left again unharmed."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e.conftest import open_tenant
from tests.support.cluster.audit import Request, audit_lines, writes
from tests.support.cluster.memories import Row, rows, sensitive
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import DATABASES, INDEX, Tenant, manifest, metrics
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
ORDINARY = rows(120)
LONG = Row(1000, "once more unto the breach " * 400)
# They share one concept, a name, and the second one shares no word with the question that the first one answers.
KEEPER = Row(1001, "Zimmerlin looks after the spare anchor of the sailing boat")
NUMBER = Row(1002, "Zimmerlin has the extension 4711")
QUESTION = "who looks after the spare anchor of the sailing boat"
MEMORIES = [*ORDINARY, LONG, KEEPER, NUMBER]
QUIET = timedelta(seconds=60)


@pytest.fixture(scope="module")
def ready(platform: Platform, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A store of memories whose index was made by applying one object."""
    for tenant in open_tenant(platform, request, "lifecycle"):
        tenant.store(MEMORIES)
        tenant.start_toolbox()
        tenant.apply_index(graph__enabled=True)
        tenant.wait_ready()
        yield tenant


def test_every_condition_holds_with_a_reason_and_the_counts_are_the_databases_own(ready: Tenant) -> None:
    index = ready.index()
    conditions = {entry["type"]: entry for entry in index["status"]["conditions"]}
    expected = (
        "DatabaseReachable",
        "ExtensionReady",
        "SchemaReady",
        "EmbedderReady",
        "Backfilled",
        "IndexReady",
        "Ready",
    )
    assert {kind: conditions[kind]["status"] for kind in expected} == dict.fromkeys(expected, "True")
    assert conditions["Reconciling"]["status"] == conditions["Stalled"]["status"] == "False"
    assert all(entry["reason"] and entry["message"] for entry in conditions.values())
    counts, reported = ready.counts(), index["status"]["rows"]
    assert (reported["total"], reported["embedded"], reported["sensitive"]) == (
        counts.rows,
        counts.embedded,
        counts.sensitive,
    )
    assert reported["pending"] == reported["quarantined"] == 0


def test_every_row_has_a_vector_but_the_sensitive_ones(ready: Tenant) -> None:
    counts = ready.counts()
    assert counts.rows == len(MEMORIES)
    assert counts.sensitive == sensitive(MEMORIES)
    assert counts.embedded == counts.expected
    assert counts.sensitive_embedded == 0


def test_a_text_longer_than_the_model_accepts_is_truncated_embedded_and_counted(ready: Tenant) -> None:
    assert ready.sql(f"SELECT embedding IS NOT NULL FROM memories WHERE id = {LONG.id}") == "t"
    assert "memory_embedder_truncated_total 1.0" in metrics(ready, "embedder", 9090)


def test_the_columns_of_kubectl_get_show_the_state(ready: Tenant) -> None:
    heading, line = ready.kubectl("get", "memoryindexes").strip().splitlines()
    assert heading.split() == ["NAME", "READY", "MODEL", "EMBEDDED", "PENDING", "EMBEDDER", "AGE"]
    assert line.split()[:-1] == [INDEX, "True", "all-MiniLM-L6-v2", "100%", "0", "1/1"]
    wide = ready.kubectl("get", "memoryindexes", "-o", "wide").splitlines()[0].split()
    assert wide[-2:] == ["REASON", "MESSAGE"]


def test_kubectl_explain_describes_the_fields_of_the_embedding(ready: Tenant) -> None:
    page = ready.kubectl("explain", "memoryindex.spec.embedding")
    for field in ("model", "dimensions", "queryEgress", "source"):
        assert f"  {field}\t<" in page
    assert "<no description>" not in page


def test_a_recall_answers_with_both_legs(ready: Tenant) -> None:
    target = ORDINARY[0]
    answer = ready.memory("recall", target.content, "--everyone", "--mode", "hybrid", "--limit", "3")
    assert answer["memories"][0]["id"] == target.id
    assert not answer.get("degraded")


def test_a_recall_finds_by_the_graph_what_words_and_meaning_do_not_find(ready: Tenant) -> None:
    ready.wait_condition("GraphReady", "Filled", status="True")
    assert NUMBER.id in found(ready), "without the graph it is not found: a later test asks again"


def test_the_status_counts_the_graph_as_the_database_does(ready: Tenant) -> None:
    links, memories = ready.sql("SELECT count(*), count(DISTINCT memory_id) FROM memory_concepts").split("|")
    counted = {"links": int(links), "memories": int(memories), "pending": 0}
    assert counted["memories"] == len(MEMORIES) - sensitive(MEMORIES)
    eventually(
        lambda: ready.index()["status"].get("graph"), lambda seen: seen == counted, what=f"{counted}", seconds=60
    )


def test_an_edited_and_a_new_row_get_their_vectors_and_a_row_turned_sensitive_loses_it(ready: Tenant) -> None:
    edited, turned, added = ORDINARY[1], ORDINARY[2], Row(2000, "a memory that came after the index")
    vector = f"SELECT embedding FROM memories WHERE id = {edited.id}"
    before = ready.sql(vector)
    ready.as_owner(
        f"""UPDATE memories SET content = 'quite another subject' WHERE id = {edited.id};
            UPDATE memories SET is_sensitive = true WHERE id = {turned.id};
            INSERT INTO memories (id, content) VALUES ({added.id}, '{added.content}');"""
    )
    without = "SELECT count(*) FROM memories WHERE embedding IS NULL AND NOT is_sensitive"
    eventually(lambda: ready.sql(without), lambda count: count == "0", what="the sync to embed both rows")
    assert ready.sql(vector) not in {"", before}
    assert ready.sql(f"SELECT embedding IS NULL FROM memories WHERE id = {turned.id}") == "t"


def test_a_graph_that_is_disabled_is_kept_unused_or_dropped_as_the_deletion_policy_says(ready: Tenant) -> None:
    ready.apply_index(graph__enabled=False)
    ready.wait_condition("GraphReady", "Disabled")
    assert int(ready.sql("SELECT count(*) FROM memory_concepts")) > 0
    assert KEEPER.id in (without := found(ready))
    assert NUMBER.id not in without
    ready.apply_index(graph__enabled=False, deletionPolicy="Delete")
    eventually(
        lambda: ready.view().conditions,
        lambda conditions: "GraphReady" not in conditions,
        what="no condition GraphReady",
    )
    assert ready.sql("SELECT count(*) FROM pg_class WHERE relname LIKE 'memory_concepts%'") == "0"
    assert "graph" not in ready.index()["status"]
    assert ready.embedded() > 0, "nothing else is dropped"
    ready.apply_index(graph__enabled=False, deletionPolicy="Retain")
    ready.wait_ready()


def test_the_annotation_has_a_settled_object_reconciled_now(ready: Tenant) -> None:
    """Three times in a row; by itself a settled object is reconciled every half minute."""
    for request in ("first", "second", "third"):
        ready.kubectl("annotate", "memoryindex", INDEX, f"memory-index.dev/reconcile-at={request}", "--overwrite")
        eventually(
            lambda: ready.index()["status"].get("lastHandledReconcileAt"),
            lambda handled, request=request: handled == request,
            what="the status to be newer than the request",
            seconds=15,
        )


def test_events_tell_which_jobs_ran_and_that_the_object_became_ready(ready: Tenant) -> None:
    about = ("--field-selector", "involvedObject.kind=MemoryIndex", "-o", "jsonpath={.items[*].reason}")
    assert {"JobStarted", "Ready"} <= set(ready.kubectl("get", "events", *about).split())


def test_a_suspended_object_is_left_alone_and_continues_when_resumed(tenant: Tenant) -> None:
    tenant.store(rows(12))
    tenant.apply_index(suspend=True)
    tenant.wait_condition("Ready", "Suspended")
    view = tenant.view()
    assert view.observed, "observedGeneration advances while suspended"
    assert tenant.kubectl("get", "jobs,deployments", "-o", "name") == ""
    assert tenant.embedded() == 0
    tenant.apply_index(suspend=False)
    tenant.wait_ready()


def test_deletion_keeps_the_vectors_and_deletes_what_the_operator_created(tenant: Tenant) -> None:
    """The concept graph is paused: what it holds stays, but changes of memories are queued for nobody any more."""
    memories = rows(12)
    tenant.store(memories)
    tenant.apply_index(graph__enabled=True)
    tenant.wait_ready()
    tenant.wait_condition("GraphReady", "Filled", status="True")
    tenant.kubectl("delete", "memoryindex", INDEX, "--wait", "--timeout=240s")
    assert tenant.embedded() == len(memories) - sensitive(memories)
    relations = "SELECT to_regclass('memory_concepts') IS NULL, to_regclass('memory_graph_changes') IS NULL"
    assert tenant.sql(relations) == "f|t"
    assert database_objects(tenant, "metadata.name", tenant.name), "somebody else's object brought pgvector, and stays"
    children = (
        "get",
        "deployments,jobs,services,networkpolicies",
        "-l",
        "app.kubernetes.io/managed-by=memory-operator",
    )
    eventually(
        lambda: tenant.kubectl(*children, "-o", "name"),
        lambda left: left == "",
        what="the children gone with their owner",
    )


def test_pgvector_comes_by_an_object_of_our_own_to_the_database_that_the_cluster_was_created_with(
    tenant: Tenant,
) -> None:
    postgres = tenant.postgres
    owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'app'"
    before = postgres.psql(owner)
    tenant.write_secret(postgres.application_dsn())
    tenant.cluster.apply(manifest(tenant, {"database__name": "app"}))
    tenant.wait_condition("ExtensionReady", "Installed", status="True")
    assert database_objects(tenant, "spec.name", "app")
    assert postgres.psql(owner) == before
    tenant.kubectl("delete", "memoryindex", INDEX, "--wait", "--timeout=240s")
    assert not database_objects(tenant, "spec.name", "app")
    assert postgres.psql("SELECT extname FROM pg_extension WHERE extname = 'vector'", "app") == "vector"


def test_a_settled_object_causes_no_write_by_the_operator(ready: Tenant) -> None:
    """The API server's audit log shows no write about it for sixty seconds, while other objects come and go."""
    of_operator = ("-n", "memory-index-system", "get", "deploy", "memory-operator")
    account = ready.cluster.kubectl(*of_operator, "-o", "jsonpath={.spec.template.spec.serviceAccountName}")
    user = f"system:serviceaccount:memory-index-system:{account}"

    def about_it() -> list[Request]:
        return [write for write in writes(audit_lines(ready.cluster), user=user) if write.concerns(ready.name)]

    seen = eventually(
        about_it,
        lambda found: bool(found) and datetime.now(UTC) - found[-1].at > QUIET,
        what=f"{QUIET} without a write about {ready.name} by {user}",
        seconds=QUIET.total_seconds() * 1.5,
        poll=2,
    )
    version = ready.index()["metadata"]["resourceVersion"]
    assert about_it() == seen
    assert ready.index()["metadata"]["resourceVersion"] == version


def found(tenant: Tenant) -> list[int]:
    """The ids of the ten memories that answer the question."""
    answer = tenant.memory("recall", QUESTION, "--everyone", "--mode", "hybrid", "--limit", "10")
    assert not answer.get("degraded")
    return [row["id"] for row in answer["memories"]]


def database_objects(tenant: Tenant, path: str, value: str) -> list[str]:
    """The names of the Database objects beside the Postgres cluster that have this value at this path."""
    template = "jsonpath={range .items[?(@." + path + "=='" + value + "')]}{.metadata.name}{'\\n'}{end}"
    return tenant.cluster.kubectl("-n", tenant.postgres.namespace, "get", DATABASES, "-o", template).split()
