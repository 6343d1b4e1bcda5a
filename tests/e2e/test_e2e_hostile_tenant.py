"""A tenth of the hostile inputs of the benchmark: the operator goes on for others and is not restarted."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.e2e.conftest import open_tenant
from tests.support.cluster.api import INDEXES
from tests.support.cluster.hostile.author import operator_starts, serve_others
from tests.support.cluster.hostile.inputs import GROUPS, give, start_server
from tests.support.cluster.hostile.tenants import prepare
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import INDEX, Tenant
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
TENTH = {
    "uris": "uri-sslrootcert",
    "names": "name-0",
    "answers": "answer-deep",
    "metrics": "metrics-quotes",
    "versions": "version-superscript",
    "sizes": "large-owned-services",
}


@pytest.fixture(scope="module")
def tenants(platform: Platform, request: pytest.FixtureRequest) -> Iterator[tuple[Tenant, Tenant]]:
    """An honest and a hostile tenant, whose objects are Ready; in the end the operator still runs as before."""
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
        before = operator_starts(platform.cluster)
        yield found[0], found[1]
        assert operator_starts(platform.cluster) == before


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
    before = operator_starts(platform.cluster)
    name = TENTH[group]
    assert give(hostile, GROUPS[group].inputs[name]), "an input that is refused shows nothing"
    until_read(hostile, group, name)
    serve_others(honest)
    assert operator_starts(platform.cluster) == before


def until_read(hostile: Tenant, group: str, name: str) -> None:
    """Wait until the operator has read an input, be it an object of its own or what is read for the tenant's object."""
    if group in {"uris", "names", "answers"}:
        path = f"{INDEXES}/namespaces/{hostile.name}/memoryindexes/{name}"
        eventually(
            lambda: hostile.cluster.read(path).get("status", {}).get("conditions", []),
            lambda conditions: any(one["reason"] not in {"Seen", "Progressing"} for one in conditions),
            what=f"the operator's word about {name}",
        )
        return
    if group == "metrics":
        hostile.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=240s")
    hostile.kubectl("annotate", "memoryindex", INDEX, f"memory-index.dev/reconcile-at={name}", "--overwrite")
    eventually(
        lambda: hostile.index().get("status", {}).get("lastHandledReconcileAt"),
        lambda handled: handled == name,
        what=f"a reconcile after {name}",
    )
