"""What breaks while rows are being embedded costs nothing but time: it ends Ready, nothing lost, nothing leaked.

The primary's own death has a module of its own.
"""

import pytest

from memory_bench.operator.tenants import Tenant
from memory_bench.operator.texts import rows, sensitive
from memory_bench.operator.waiting import eventually
from tests.e2e.injected_faults import assert_no_row_lost, component, kill, wait_until_under_way

pytestmark = pytest.mark.cluster
MANY = rows(900)
DUE = len(MANY) - sensitive(MANY)
OPERATOR = ("-n", "memory-index-system", "pods", "-l", component("operator"))


def test_the_deaths_of_the_embedder_and_of_the_backfill_pod_in_one_run_only_delay(tenant: Tenant) -> None:
    tenant.store(MANY)
    tenant.apply_index()
    wait_until_under_way(tenant, DUE)
    kill(tenant, "-n", tenant.name, "pods", "-l", component("backfill"))
    before = tenant.embedded()
    eventually(tenant.embedded, lambda count: count > before, what="the Job's next pod at work", seconds=90)
    kill(tenant, "-n", tenant.name, "pods", "-l", component("embedder"))
    assert_no_row_lost(tenant, MANY)


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
    wait_until_under_way(tenant, DUE)
    kill(tenant, *OPERATOR)
    jobs = ("get", "jobs", "-l", component("backfill"), "-o", "jsonpath={.items[*].metadata.uid}")
    running = tenant.kubectl(*jobs)
    assert_no_row_lost(tenant, MANY)
    assert set(tenant.kubectl(*jobs).split()) <= set(running.split()), "the backfill was started a second time"
