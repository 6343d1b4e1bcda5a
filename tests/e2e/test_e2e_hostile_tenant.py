"""A tenth of the hostile inputs of the benchmark: the operator goes on for others and is not restarted."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.e2e.conftest import open_tenant
from tests.support.cluster.hostile.author import operator_restarts, serve_others
from tests.support.cluster.hostile.inputs import GROUPS, give, start_server
from tests.support.cluster.hostile.tenants import prepare
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import Tenant

pytestmark = pytest.mark.cluster
TENTH = {
    "uris": "uri-sslrootcert",
    "names": "name-0",
    "answers": "answer-deep",
    "metrics": "forged-quotes",
    "versions": "version-superscript",
    "sizes": "large-owned-services",
}


@pytest.fixture(scope="module")
def tenants(platform: Platform, request: pytest.FixtureRequest) -> Iterator[tuple[Tenant, Tenant]]:
    """An honest and a hostile tenant, whose objects are Ready."""
    platform.start_embedder()
    with ExitStack() as stack:
        found = []
        for name in ("t-honest", "t-hostile"):
            opening = open_tenant(platform, request, name)
            found.append(next(opening))
            stack.callback(next, opening, None)
        found[0].store(rows(12))
        found[0].apply_index()
        found[0].wait_ready()
        prepare(found[1])
        start_server(found[1])
        yield found[0], found[1]


@pytest.mark.promise("operator-shared-fairly")
@pytest.mark.finding("security S1", case="uris")
@pytest.mark.finding("security S2", case="metrics")
@pytest.mark.finding("security S14", case="sizes")
@pytest.mark.finding("security L2", case="versions")
@pytest.mark.parametrize("group", TENTH)
def test_a_hostile_input_neither_restarts_the_operator_nor_keeps_it_from_others(
    platform: Platform, tenants: tuple[Tenant, Tenant], group: str
) -> None:
    honest, hostile = tenants
    restarts = operator_restarts(platform.cluster)
    give(hostile, GROUPS[group].inputs[TENTH[group]])
    serve_others(honest)
    assert operator_restarts(platform.cluster) == restarts
