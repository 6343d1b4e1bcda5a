"""A consent that is withdrawn on a real cluster: no text leaves any more, and what waited is embedded afterwards."""

from collections.abc import Iterator

import pytest

from memory_bench.operator.platform import Platform
from memory_bench.operator.tenancy.recorder import Recorder
from memory_bench.operator.tenancy.withdrawals import WITHDRAWALS, Scene, complete, prepare, recording, stopped
from memory_bench.operator.tenants import Tenant
from memory_bench.operator.texts import rows

pytestmark = [pytest.mark.cluster, pytest.mark.exclusive]


@pytest.fixture(scope="module")
def recorder(platform: Platform) -> Iterator[Recorder]:
    """An embedder that records which texts it gets, permitted by the chart."""
    platform.start_embedder()
    with recording(platform) as started:
        yield started


@pytest.mark.promise("consent-has-an-end")
@pytest.mark.finding("security S4")
@pytest.mark.parametrize("name", ["annotation", "key-label", "uri-label-in-a-backfill"])
def test_after_a_withdrawal_no_text_leaves_until_it_is_given_back_and_then_none_is_lost(
    platform: Platform, recorder: Recorder, tenant: Tenant, name: str
) -> None:
    withdrawal, scene = WITHDRAWALS[name], Scene(platform, tenant)
    prepare(scene, withdrawal)
    withdrawal.withdraw(scene)
    stopped(scene, withdrawal)
    before = recorder.texts(tenant.name)
    tenant.add(rows(8, first=100_000, sensitive_every=1_000_000))
    tenant.kubectl("annotate", "memoryindex", "mi", "memory-index.dev/reconcile-at=now")
    stopped(scene, withdrawal)
    assert recorder.texts(tenant.name) == before
    withdrawal.give_back(scene)
    complete(scene)
    assert sum(text.count for text in recorder.texts(tenant.name)) >= withdrawal.rows + 8
