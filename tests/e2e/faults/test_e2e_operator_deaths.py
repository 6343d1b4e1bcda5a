"""The operator is killed in every phase of an object's way to Ready."""

import pytest

from tests.e2e.faults.injected_faults import assert_no_row_lost, component, kill, wait_until_under_way
from tests.support.cluster.memories import rows, sensitive
from tests.support.cluster.tenants import Tenant
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.exclusive]
MANY = rows(600)
DUE = len(MANY) - sensitive(MANY)
OPERATOR = ("-n", "memory-index-system", "pods", "-l", component("operator"))


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
