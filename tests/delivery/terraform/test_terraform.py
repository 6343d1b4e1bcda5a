"""The Terraform modules and the Terragrunt unit, copied into an infrastructure repository and applied by OpenTofu.

The tests are the stages of one life, from the first plan on a cluster that knows nothing of us to the destruction, and
run in their order.
"""

import base64
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from devcluster.cluster import Cluster
from devcluster.postgres import Postgres
from devcluster.retrying import until
from memory_operator.resources.quantities import same_quantity
from tests.delivery.terraform.leftovers import inventory, left
from tests.delivery.terraform.stack import DATABASE, DEFINITION, NAMESPACE, ROWS, SEAT, Stack, tofu_in

ROOT = Path(__file__).parents[3]
SECRET = "claude-memory-index-dsn"
TAINT = "nvidia.com/gpu=true:NoSchedule"


def index(cluster: Cluster) -> dict[str, Any]:
    """The MemoryIndex."""
    return dict(cluster.kubectl_json("-n", NAMESPACE, "get", "memoryindex", NAMESPACE))


def ready_embedders(cluster: Cluster) -> list[dict[str, Any]]:
    """The embedder's pods that are ready."""
    label = "app.kubernetes.io/component=embedder"
    pods = cluster.kubectl_json("-n", NAMESPACE, "get", "pods", f"--selector={label}")["items"]
    return [
        pod
        for pod in pods
        if ("Ready", "True") in {(one["type"], one["status"]) for one in pod["status"].get("conditions", [])}
    ]


def write_secret_as_external_secrets_does(cluster: Cluster, dsn: str) -> None:
    """Write the Secret that the ExternalSecret describes, owned by it, as External Secrets does."""
    external = cluster.kubectl_json("-n", NAMESPACE, "get", "externalsecret", SECRET)
    target, parts = external["spec"]["target"], urlsplit(dsn)
    data = {
        key: text.replace("{{ .username | urlquery }}", str(parts.username)).replace(
            "{{ .password | urlquery }}", str(parts.password)
        )
        for key, text in target["template"]["data"].items()
    }
    owner = {"apiVersion": external["apiVersion"], "kind": external["kind"], "name": SECRET, "controller": True}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": target["name"],
                "namespace": NAMESPACE,
                "labels": target["template"]["metadata"]["labels"],
                "ownerReferences": [{**owner, "uid": external["metadata"]["uid"]}],
            },
            "stringData": data,
        }
    )


@pytest.fixture(scope="module")
def before(cluster: Cluster, stack: Stack, dsn: str) -> set[str]:
    """Every object of the cluster before the first apply."""
    return inventory(cluster)


@pytest.mark.parametrize("module", ["memory-index", "memory-operator"])
def test_each_module_is_valid_by_itself(
    module: str, infrastructure: Path, settings: dict[str, str], tmp_path: Path
) -> None:
    """A module needs nothing but the providers that it requires."""
    copied = Path(shutil.copytree(infrastructure / "modules" / module, tmp_path / module))
    tofu_in(copied, settings, "init", "-backend=false", "-input=false")
    tofu_in(copied, settings, "validate")


def test_the_sources_are_in_opentofus_own_format(settings: dict[str, str]) -> None:
    """`tofu fmt` would change nothing."""
    assert tofu_in(ROOT / "terraform", settings, "fmt", "-check", "-recursive").stdout == ""


def test_a_plan_needs_neither_the_definition_nor_the_dependencies(cluster: Cluster, stack: Stack) -> None:
    """On a cluster that knows no MemoryIndex, with mock outputs, init, validate and plan succeed."""
    assert DEFINITION not in cluster.kubectl("get", "crd", "--output=name")
    alone = Stack(stack.unit, stack.settings, outputs={})
    alone.run("init", "-input=false")
    alone.run("validate")
    assert alone.changes() == [
        "kubectl_manifest.dsn",
        "module.claude_memory.kubectl_manifest.memory_index",
        "module.operator.helm_release.operator",
        "module.operator.kubectl_manifest.definition",
        "module.operator.kubectl_manifest.namespace[0]",
    ]
    with pytest.raises(AssertionError, match="dbaas was never applied"):
        alone.run("apply")


@pytest.mark.timeout(900)
def test_one_apply_from_nothing_leads_to_ready(cluster: Cluster, stack: Stack, dsn: str, before: set[str]) -> None:
    """The MemoryIndex becomes Ready on the shared Cluster, with the DSN of External Secrets and all rows embedded."""
    stack.run("apply", "-auto-approve", "-input=false")
    write_secret_as_external_secrets_does(cluster, dsn)
    cluster.kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", f"memoryindex/{NAMESPACE}", "--timeout=600s")
    assert index(cluster)["status"]["rows"]["embedded"] == ROWS
    url = stack.run("output", "-raw", "embedder_url").stdout
    assert url == index(cluster)["status"]["embedder"]["url"]


def test_the_embedder_takes_its_seat_on_the_tainted_node(cluster: Cluster, stack: Stack, node: str) -> None:
    """Its pod is placed on a node with the taint and holds the GPU, the memory seat, and both classes."""
    (former,) = ready_embedders(cluster)
    cluster.kubectl("taint", "node", node, TAINT)
    try:
        cluster.kubectl("-n", NAMESPACE, "delete", "pod", former["metadata"]["name"])
        until("another embedder is ready", lambda: len(ready_embedders(cluster)) == 1, seconds=180)
        (pod,) = ready_embedders(cluster)
        cluster.kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", f"memoryindex/{NAMESPACE}", "--timeout=180s")
    finally:
        cluster.kubectl("taint", "node", node, f"{TAINT}-")
    assert pod["metadata"]["uid"] != former["metadata"]["uid"]
    assert pod["spec"]["nodeName"] == node
    assert pod["spec"]["runtimeClassName"] == "nvidia"
    assert pod["spec"]["priorityClassName"] == "gpu-workload"
    requested = pod["spec"]["containers"][0]["resources"]["requests"]
    for name, amount in SEAT.items():
        assert same_quantity(requested.get(name), amount), name


def test_a_second_plan_is_empty(stack: Stack, figures: dict[str, Any]) -> None:
    """What was applied is what the plan asks for, although operator and API server have added to the objects since."""
    changes = stack.changes()
    figures["tofu_second_plan_changes"] = len(changes)
    assert changes == []


def test_no_secret_is_in_the_state_or_the_plan(stack: Stack, infrastructure: Path, dsn: str) -> None:
    """Neither the state nor any other file of the repository contains the password, be it plain or in base64."""
    password = str(urlsplit(dsn).password)
    assert SECRET in stack.state.read_text(encoding="utf-8")
    files = [path for path in infrastructure.rglob("*") if path.is_file() and ".terraform" not in path.parts]
    texts = [stack.plan().encode(), *(path.read_bytes() for path in files)]
    encoded = (base64.b64encode(form.encode()).rstrip(b"=") for form in (password, dsn))
    assert not [form for form in (password.encode(), *encoded) for text in texts if form in text]


def test_destroy_leaves_the_definition_and_the_data(
    cluster: Cluster, stack: Stack, postgres: Postgres, before: set[str], figures: dict[str, Any]
) -> None:
    """The MemoryIndex goes before the operator; then only the definition is left, and each row with its vector."""
    told = stack.run("destroy", "-auto-approve", "-input=false").stdout
    gone = "module.claude_memory.kubectl_manifest.memory_index: Destruction complete"
    assert 0 < told.index(gone) < told.index("module.operator.helm_release.operator: Destroying")
    until("what was destroyed is gone", lambda: left(cluster, before) == ["crd"], seconds=120)
    assert postgres.psql("SELECT count(*), count(embedding) FROM memories", DATABASE) == f"{ROWS}|{ROWS}"
    figures["destroy_left"] = [*left(cluster, before), "data"]
