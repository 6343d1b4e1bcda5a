"""Faults that are injected while rows are being embedded, and the checks afterwards."""

from collections.abc import Sequence

from tests.support.cluster.memories import Row, sensitive
from tests.support.cluster.tenants import Tenant


def wait_until_under_way(tenant: Tenant, due: int) -> None:
    """Wait until between a tenth and four fifths of the rows that may have a vector have one."""
    done = tenant.wait_embedded(due // 10)
    assert done <= due * 8 // 10, "the backfill was too fast to be disturbed: give it more rows"


def assert_no_row_lost(tenant: Tenant, memories: Sequence[Row]) -> None:
    """Assert that the object becomes ready with exactly the vectors that it must have."""
    tenant.wait_ready()
    counts = tenant.counts()
    assert counts.rows == len(memories)
    assert counts.embedded == counts.expected == len(memories) - sensitive(memories)
    assert counts.sensitive_embedded == 0


def component(name: str) -> str:
    """Return the label selector of a component's pods."""
    return f"app.kubernetes.io/component={name}"


def kill(tenant: Tenant, *selection: str) -> None:
    """Delete pods without a grace period, as when a node fails."""
    output = tenant.cluster.kubectl("delete", "--grace-period=0", "--force", "--wait=false", *selection)
    assert "force deleted" in output, f"there was nothing to kill: {selection}"
