"""What breaks while rows are being embedded costs nothing but time: it ends Ready, nothing lost, nothing leaked.

Each test breaks one thing in one run, at a moment that it observes: some rows have a vector, most have not.
"""

import pytest

from tests.e2e.tenants import Tenant
from tests.e2e.texts import rows, sensitive
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.cluster
MANY = rows(1500)
DUE = len(MANY) - sensitive(MANY)
RECOVERY_SECONDS = 240.0
OPERATOR = ("-n", "memory-index-system", "pods", "-l", "app.kubernetes.io/component=operator")


@pytest.fixture
def busy(tenant: Tenant) -> Tenant:
    """A tenant whose backfill is well under way."""
    tenant.store(MANY)
    tenant.apply_index()
    under_way(tenant)
    return tenant


def under_way(tenant: Tenant) -> None:
    """Until between a tenth and four fifths of the rows have a vector."""
    done = eventually(
        tenant.embedded, lambda count: count >= DUE // 10, what="a tenth of the rows embedded", seconds=150
    )
    assert done <= DUE * 8 // 10, "the backfill was too fast to be disturbed: give it more rows"


def assert_nothing_was_lost(tenant: Tenant) -> None:
    tenant.wait_ready(RECOVERY_SECONDS)
    counts = tenant.counts()
    assert counts.rows == len(MANY)
    assert counts.embedded == counts.expected == DUE
    assert counts.sensitive_embedded == 0


def component(name: str) -> str:
    return f"app.kubernetes.io/component={name}"


def kill(tenant: Tenant, *selection: str) -> None:
    """As a node that dies: no grace."""
    told = tenant.cluster.kubectl("delete", "--grace-period=0", "--force", "--wait=false", *selection)
    assert "force deleted" in told, f"there was nothing to kill: {selection}"


def test_the_death_of_the_primary_promotes_a_replica_and_loses_no_row(busy: Tenant) -> None:
    before = busy.postgres.primary()
    kill(busy, "-n", busy.postgres.namespace, "pod", before)
    eventually(
        busy.postgres.primary, lambda primary: primary not in {"", before}, what="the replica promoted", seconds=90
    )
    assert_nothing_was_lost(busy)
    busy.postgres.wait_ready()


def test_the_death_of_the_embedder_only_delays(busy: Tenant) -> None:
    kill(busy, "-n", busy.name, "pods", "-l", component("embedder"))
    assert_nothing_was_lost(busy)


def test_the_death_of_a_backfill_pod_is_made_good_by_its_job(busy: Tenant) -> None:
    kill(busy, "-n", busy.name, "pods", "-l", component("backfill"))
    assert_nothing_was_lost(busy)


def test_the_death_of_the_operator_in_every_phase_redoes_no_finished_work(tenant: Tenant) -> None:
    tenant.store(MANY)
    tenant.apply_index()
    for phase in ("ExtensionReady", "SchemaReady", "EmbedderReady"):
        eventually(
            tenant.view,
            lambda seen, kind=phase: bool(seen.condition(kind).reason),  # type: ignore[misc]  # bound at once
            what=f"{phase} reported",
            seconds=120,
        )
        kill(tenant, *OPERATOR)
    under_way(tenant)
    kill(tenant, *OPERATOR)
    jobs = ("get", "jobs", "-l", component("backfill"), "-o", "jsonpath={.items[*].metadata.uid}")
    running = tenant.kubectl(*jobs)
    assert_nothing_was_lost(tenant)
    assert set(tenant.kubectl(*jobs).split()) <= set(running.split()), "the backfill was started a second time"
