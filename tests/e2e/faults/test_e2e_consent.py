"""A consent that is withdrawn on a real cluster: no text leaves any more, and what waited is embedded afterwards.

One withdrawal stops the sync worker, and one a running backfill. Unit tests withdraw each kind of consent, and so does
the benchmark on a cluster.
"""

from collections.abc import Iterator

import pytest

from tests.support.cluster.consent.recorder import Recorder
from tests.support.cluster.consent.withdrawals import WITHDRAWALS, Scene, complete, prepare, recording, stopped
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import Tenant

pytestmark = [pytest.mark.cluster, pytest.mark.exclusive]


@pytest.fixture(scope="module")
def recorder(platform: Platform) -> Iterator[Recorder]:
    """An embedder that records which texts it gets, permitted by the chart."""
    platform.start_embedder()
    with recording(platform) as started:
        yield started


@pytest.mark.promise("consent-has-an-end")
@pytest.mark.finding("security S4")
@pytest.mark.parametrize("name", ["annotation", "uri-label-in-a-backfill"])
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
