"""The primary dies while rows are embedded, again while edits are, and again while the model is swapped.

During the second death, and while a replica dies, recalls go on on the primary and on replicas.
The next model is the default model's own file under another name: what is on trial is the change-over, not the vectors.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from devcluster.demo.environment import MODEL, last_object
from devcluster.demo.objects import TOOLBOX
from memory_embedder.models.profiles import PROFILES
from tests.e2e.conftest import open_tenant
from tests.e2e.faults.injected_faults import assert_no_row_lost, kill, wait_until_under_way
from tests.e2e.faults.recalling import recalling, replay_paused
from tests.support.cluster.memories import rows, sensitive
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import Tenant
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
MANY = rows(600)
DUE = len(MANY) - sensitive(MANY)
NEVER = 1_000_000
# The session that reads ahead names itself after how far it is; its pages are those of the server that it runs on.
READ_AHEAD = r"SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^memory-warming \d+ (\d+)/\1 MiB$'"
STANDBY = "SELECT 1 FROM pg_attribute WHERE attrelid = 'memories'::regclass AND attname = 'embedding_standby'"


@pytest.fixture(scope="module")
def store(fragile: Platform, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A store whose rows are being embedded."""
    for tenant in open_tenant(fragile, request, "takeover"):
        tenant.store(MANY)
        tenant.start_toolbox()
        tenant.apply_index()
        yield tenant


def kill_primary(tenant: Tenant) -> None:
    """Kill the primary and wait until a replica is promoted."""
    before = tenant.postgres.primary()
    kill(tenant, "-n", tenant.postgres.namespace, "pod", before)
    eventually(tenant.postgres.primary, lambda primary: primary not in {"", before}, what="the replica promoted")


def recalled(tenant: Tenant, text: str, *, model: str) -> tuple[int, bool]:
    """Recall once; return the first memory and whether the answer was degraded."""
    query = ("recall", text, "--everyone", "--mode", "hybrid", "--limit", "3", "--json")
    command = ("env", f"MEMORY_MODEL={model}", "memory", *query)
    answer = last_object(tenant.kubectl("exec", "-i", TOOLBOX, "--", *command))
    return answer["memories"][0]["id"], bool(answer.get("degraded"))


def test_the_death_of_the_primary_during_the_backfill_promotes_a_replica_and_loses_no_row(store: Tenant) -> None:
    wait_until_under_way(store, DUE)
    kill_primary(store)
    assert_no_row_lost(store, MANY)
    store.postgres.wait_ready()


def test_the_death_of_the_primary_while_edits_are_embedded_loses_none_of_them(store: Tenant) -> None:
    """Recalls on the primary and on replicas come back, and none gives a text that had become sensitive.

    What recalls search is read ahead on the promoted server.
    """
    store.wait_ready()
    store.sql("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
    with recalling(store, rows(160, first=10_001, sensitive_every=NEVER)) as recalls:
        recalls.wait_answered("primary", "replicas")
        with replay_paused(store.postgres):
            recalls.wait_marked()
            recalls.wait_answered("replicas")
        store.as_owner("UPDATE memories SET content = content || ' revised' WHERE NOT is_sensitive")
        wait_until_under_way(store, DUE)
        kill_primary(store)
        embedded = f"SELECT count(embedding) FROM memories WHERE id <= {len(MANY)}"
        eventually(
            lambda: int(store.sql(embedded)),
            lambda count: count == DUE,
            what="every edit embedded",
        )
        recalls.wait_answered("primary", "replicas")
    eventually(lambda: store.sql(READ_AHEAD), lambda count: count == "1", what="the promoted server's pages read ahead")
    assert store.counts().sensitive_embedded == 0
    store.postgres.wait_ready()


def test_the_death_of_a_replica_refuses_no_recall_on_the_primary(store: Tenant) -> None:
    """Those on replicas are refused meanwhile, and come back."""
    with recalling(store, rows(80, first=20_001, sensitive_every=NEVER)) as recalls:
        recalls.wait_answered("primary", "replicas")
        begun = len(recalls.recalls)
        (replica,) = store.postgres.replicas()
        kill(store, "-n", store.postgres.namespace, "pod", replica)
        eventually(
            lambda: recalls.errors("replicas", since=begun), bool, what="recalls on replicas refused", seconds=60
        )
        recalls.wait_answered("primary", "replicas")
        assert recalls.errors("primary", since=begun) == []
    store.postgres.wait_ready()


def test_a_model_swap_outlives_the_death_of_the_primary_and_recalls_go_on(store: Tenant, platform: Platform) -> None:
    store.wait_ready()
    store.apply_index(
        embedding__model="custom",
        embedding__pooling="mean",
        embedding__maxTokens=256,
        embedding__source={
            "image": {
                "reference": platform.embedder_image,
                "path": f"/models/{MODEL}.gguf",
                "digest": PROFILES[MODEL].file_digest,
            }
        },
    )
    eventually(lambda: store.sql(STANDBY), lambda found: found == "1", what="the next model's column", seconds=120)
    with ThreadPoolExecutor(1) as pool:
        # The models cannot be exchanged while a transaction reads the table; it ends with the primary.
        reader = pool.submit(store.sql, "BEGIN; LOCK TABLE memories IN ROW SHARE MODE; SELECT pg_sleep(240);")
        filled = "SELECT count(embedding_standby) FROM memories"
        eventually(lambda: int(store.sql(filled)), lambda count: count > 0, what="the column being filled")
        assert recalled(store, MANY[0].content, model=MODEL) == (MANY[0].id, False)
        kill_primary(store)
        assert reader.exception() is not None
    store.wait_condition("ModelActive", "Active", status="True")
    assert_no_row_lost(store, MANY)
    assert store.index()["status"]["model"] == {"active": "custom", "previous": MODEL}
    assert recalled(store, MANY[0].content, model="custom") == (MANY[0].id, False)
    assert "mi-embedder-next" not in store.kubectl("get", "deployments", "-o", "name")
    store.postgres.wait_ready()
