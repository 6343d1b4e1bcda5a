"""Policies of a real API server change what the operator sends, all at once: the index is made, and writing ends."""

from collections.abc import Iterator

import pytest

from devcluster.node.configs import OPERATOR_USER
from tests.support.cluster.audit import audit_lines, writes
from tests.support.cluster.environment.admission import MUTATIONS, applies, check, opened
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import Tenant

pytestmark = pytest.mark.cluster
QUIET_SECONDS = 20.0


@pytest.fixture(scope="module")
def mutated(platform: Platform) -> Iterator[Tenant]:
    """A tenant on whose objects every mutation acts, and whose index is Ready."""
    platform.postgres.wait_ready()
    with opened(platform, MUTATIONS) as tenant:
        yield tenant


@pytest.mark.finding("operator F1")
def test_an_index_under_every_mutation_is_ready_embedded_and_names_the_fields(mutated: Tenant) -> None:
    check(mutated, MUTATIONS)


@pytest.mark.finding("operator F1")
def test_nothing_is_written_while_nothing_happens(platform: Platform, mutated: Tenant) -> None:
    assert applies(platform, [mutated.name], QUIET_SECONDS) == 0


@pytest.mark.finding("operator F1")
def test_a_persons_edit_is_undone_under_admission(platform: Platform, mutated: Tenant) -> None:
    mutated.wait_ready()
    image = "jsonpath={.spec.template.spec.containers[?(@.name=='embedder')].image}"
    before = mutated.kubectl("get", "deployment", "mi-embedder", "-o", image)
    mutated.kubectl("patch", "deployment", "mi-embedder", "--type=merge", "-p", '{"spec":{"minReadySeconds":99}}')
    seen = "jsonpath={.spec.minReadySeconds}"
    mutated.kubectl("wait", "deployment/mi-embedder", f"--for={seen}=15", "--timeout=60s")
    assert mutated.kubectl("get", "deployment", "mi-embedder", "-o", image) == before
    about = [one for one in writes(audit_lines(platform.cluster), user=OPERATOR_USER) if one.concerns(mutated.name)]
    assert about, "the operator wrote it"
