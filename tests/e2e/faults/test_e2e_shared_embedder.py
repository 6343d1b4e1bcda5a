"""Three indexes in three namespaces use one embedder pod, with its owner's consent and as long as that lasts."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.conftest import open_tenant
from tests.support.cluster.memories import rows, sensitive
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import INDEX, Tenant
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster]
ROWS = rows(40)
ANNOTATION = "memory-index.dev/allowed-namespaces"
EMBEDDER_PODS = "app.kubernetes.io/component=embedder"


@dataclass(frozen=True)
class Sharing:
    """The owner of the embedder, and the two that use it."""

    owner: Tenant
    users: tuple[Tenant, Tenant]

    @property
    def url(self) -> str:
        """Where the one embedder is reached."""
        return f"http://{INDEX}-embedder.{self.owner.name}.svc:8080"

    def allow(self, *tenants: Tenant) -> None:
        """Let the owner's object allow these tenants to use its embedder, and no others."""
        names = ",".join(tenant.name for tenant in tenants)
        self.owner.kubectl("annotate", "memoryindex", INDEX, "--overwrite", f"{ANNOTATION}={names}")

    def refer(self, tenant: Tenant) -> None:
        """Apply the index of a tenant that uses the owner's embedder."""
        tenant.apply_index(embedder={"ref": {"name": INDEX, "namespace": self.owner.name}})

    def recalled(self, tenant: Tenant) -> bool:
        """Whether a recall in a tenant's namespace is answered by meaning."""
        asked = ("recall", ROWS[0].content, "--everyone", "--mode", "dense")
        return not tenant.memory(*asked, settings={"MEMORY_EMBEDDER_URL": self.url})["degraded"]


@pytest.fixture(scope="module")
def sharing(platform: Platform, request: pytest.FixtureRequest) -> Iterator[Sharing]:
    """An owner whose index is Ready, and two tenants with memories whose indexes use its embedder without consent."""
    for owner in open_tenant(platform, request, "shared"):
        owner.store(ROWS)
        owner.apply_index()
        for crm in open_tenant(platform, request, "crm"):
            for shop in open_tenant(platform, request, "shop"):
                made = Sharing(owner, (crm, shop))
                for user in made.users:
                    user.store(ROWS)
                    made.refer(user)
                owner.wait_ready()
                yield made


def test_without_consent_nothing_is_embedded_and_the_line_that_gives_it_is_said(sharing: Sharing) -> None:
    for user in sharing.users:
        said = user.wait_condition("Ready", "ConsentMissing")
        assert f"annotate memoryindex {INDEX} --overwrite {ANNOTATION}={user.name}" in said.message
        assert user.embedded() == 0


def test_with_consent_all_three_are_ready_on_one_pod(sharing: Sharing) -> None:
    sharing.allow(*sharing.users)
    for user in sharing.users:
        user.wait_ready()
        assert user.embedded() == len(ROWS) - sensitive(ROWS)
        assert user.index()["status"]["embedder"]["url"] == sharing.url
    pods = [
        tenant.kubectl("get", "pods", "-l", EMBEDDER_PODS, "-o", "name").split()
        for tenant in (sharing.owner, *sharing.users)
    ]
    assert [len(found) for found in pods] == [1, 0, 0]


def test_a_recall_in_a_users_namespace_is_answered_by_meaning(sharing: Sharing) -> None:
    sharing.users[0].start_toolbox()
    assert sharing.recalled(sharing.users[0])


def test_the_owners_swap_is_refused_by_name_while_others_use_its_model(sharing: Sharing) -> None:
    sharing.owner.apply_index(embedding={"model": "bge-small-en-v1.5", "dimensions": 384})
    said = sharing.owner.wait_condition("ModelActive", "EmbedderInUse")
    assert all(f"{user.name}/{INDEX}" in said.message for user in sharing.users)
    sharing.owner.apply_index()
    sharing.owner.wait_ready()


def test_the_owners_deletion_waits_and_serves_until_nobody_uses_the_embedder(sharing: Sharing) -> None:
    crm, shop = sharing.users
    sharing.owner.kubectl("delete", "memoryindex", INDEX, "--wait=false")
    said = sharing.owner.wait_condition("Ready", "EmbedderInUse")
    assert all(f"{user.name}/{INDEX}" in said.message for user in sharing.users)
    assert sharing.recalled(crm)
    sharing.allow(crm)
    shop.wait_condition("Ready", "ConsentMissing")
    stopped = ("get", "deployment", f"{INDEX}-sync", "-o", "jsonpath={.spec.replicas}")
    eventually(lambda: shop.kubectl(*stopped), lambda found: found == "0", what="shop's worker stopped")
    crm.apply_index()  # an embedder of its own
    left = ("get", "memoryindex", INDEX, "--ignore-not-found", "-o", "name")
    eventually(lambda: sharing.owner.kubectl(*left).strip(), lambda found: not found, what="the owner deleted")
