"""Two real models of one dimension are swapped on the cluster while recalls and writes go on; a third is refused.

The memories and the gate's questions are those of examples/homelab. The active model, bge-small-en-v1.5, and a model
made of its first two layers are fetched by URL from a pod; all-MiniLM-L6-v2 is in the embedder's image.
"""

import asyncio
import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

import devcluster
from devcluster.cluster import Cluster
from devcluster.demo.environment import MODEL
from devcluster.demo.follow import Condition
from devcluster.install import OPERATOR_NAMESPACE, install_operator
from devcluster.postgres import create_postgres
from devcluster.settings import REPOSITORY
from memory_operator.resources.common import Images, container_security, pod_security
from tests.support.cluster.memories import Row
from tests.support.cluster.tenants import Tenant
from tests.support.labelled_set import questions
from tests.support.model_files.cache import SECOND_MODEL_FILE
from tests.support.model_files.truncated import truncate
from tests.support.recalling.loop import RecallLoop
from tests.support.recalling.pods import spawn_recalls

HOMELAB = REPOSITORY / "examples" / "homelab"
FORMER = "bge-small-en-v1.5"
FILES, PORT = "files", 8000
SWAP_SECONDS = 420.0
WRITE_PAUSE = 0.5
ANSWERS = 20  # of each client, before and after a swap

pytestmark = pytest.mark.skipif(
    not SECOND_MODEL_FILE.is_file(), reason="there is no second model; make second-model needs Maven"
)


def homelab() -> list[Row]:
    lines = (HOMELAB / "corpus.jsonl").read_bytes().splitlines()
    return [Row(one["id"], one["content"], one["is_sensitive"]) for one in map(orjson.loads, lines)]


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    """The operator, and a database with the memories; both are removed at the end, the definition, too."""
    images = devcluster.load_images(cluster)
    install_operator(cluster, operator_image=images.operator, embedder_image=images.embedder)
    postgres = create_postgres(cluster, namespace="models-dbaas", name="pg-models", storage="1Gi")
    tenant = Tenant(postgres, "models", images.operator)
    tenant.create()
    tenant.store(homelab())
    tenant.start_toolbox()
    meta = {"name": "questions", "namespace": tenant.name}
    tenant.cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"queries.jsonl": gate_questions()}}
    )
    yield tenant
    tenant.kubectl("delete", "memoryindex", "--all", "--wait", "--timeout=240s")
    cluster.helm("uninstall", "memory-index", f"--namespace={OPERATOR_NAMESPACE}", "--wait")
    cluster.kubectl("delete", "crd", "memoryindexes.memory-index.dev", "--wait")
    for namespace in (tenant.name, postgres.namespace):
        cluster.kubectl("delete", "namespace", namespace, "--wait", "--timeout=300s")


def gate_questions() -> str:
    return "".join(orjson.dumps(one).decode() + "\n" for one in questions(HOMELAB))


def serve_files(tenant: Tenant, image: str, *files: Path) -> None:
    """Copy files to a pod that serves them by plain HTTP inside the tenant's namespace."""
    labels = {"app": FILES}
    command = ["python3", "-m", "http.server", str(PORT), "--directory", "/files"]
    mounts = [{"name": FILES, "mountPath": "/files"}]
    container: dict[str, Any] = {"name": FILES, "image": image, "imagePullPolicy": "IfNotPresent", "command": command}
    container |= {"securityContext": container_security(), "volumeMounts": mounts}
    spec = {
        "securityContext": pod_security(Images()),
        "containers": [container],
        "volumes": [{"name": FILES, "emptyDir": {"sizeLimit": "256Mi"}}],
    }
    meta = {"name": FILES, "namespace": tenant.name, "labels": labels}
    ports = [{"port": 80, "targetPort": PORT}]
    tenant.cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": labels, "ports": ports}},
    )
    tenant.kubectl("wait", "--for=condition=Ready", f"pod/{FILES}", "--timeout=240s")
    for file in files:
        tenant.kubectl("cp", "--no-preserve", str(file), f"{FILES}:/files/{file.name}")


def embedding(tenant: Tenant, model: str, file: Path | None = None) -> dict[str, Any]:
    """Return the changes of the MemoryIndex that ask for a model, which is fetched by URL if its file is given."""
    changes: dict[str, Any] = {
        "embedding__model": model,
        "swap__gate": {"configMap": {"name": "questions", "key": "queries.jsonl"}},
    }
    if file is not None:
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        url = f"http://{FILES}.{tenant.name}.svc/{file.name}"
        changes["embedding__source"] = {"http": {"url": url, "sha256": sha256, "volume": {"size": "1Gi"}}}
    if model == "custom":
        changes |= {"embedding__pooling": "cls", "embedding__maxTokens": 512}
    return changes


async def write(tenant: Tenant, stop: asyncio.Event) -> int:
    """Add a memory and edit it, over and over, until `stop` is set; return how many were added."""
    written = 0
    while not stop.is_set():
        script = f"INSERT INTO memories (id, content) VALUES ({10_000 + written}, 'the kettle of the night {written}');"
        if written:
            script += f"UPDATE memories SET content = content || ', moved' WHERE id = {9_999 + written};"
        await asyncio.to_thread(tenant.as_owner, script)
        written += 1
        await asyncio.sleep(WRITE_PAUSE)
    return written


async def ask_for(tenant: Tenant, changes: dict[str, Any]) -> None:
    await asyncio.to_thread(tenant.apply_index, **changes)


async def condition(tenant: Tenant, reason: str, status: str) -> Condition:
    """Wait until ModelActive has this reason and status."""
    return await asyncio.to_thread(tenant.wait_condition, "ModelActive", reason, status=status, seconds=SWAP_SECONDS)


@pytest.mark.timeout(1500)
async def test_a_worse_model_is_refused_and_a_good_one_takes_over_under_recalls_and_writes(
    tenant: Tenant, tmp_path: Path, figures: dict[str, Any]
) -> None:
    worse = tmp_path / "two-layers.gguf"
    truncate(SECOND_MODEL_FILE, worse, layers=2)
    serve_files(tenant, devcluster.load_images(tenant.cluster).embedder, SECOND_MODEL_FILE, worse)
    tenant.apply_index(**embedding(tenant, FORMER, SECOND_MODEL_FILE))
    tenant.wait_ready(seconds=SWAP_SECONDS)

    asked = [str(one["text"]) for one in questions(HOMELAB)][:40]
    url = f"http://mi-embedder.{tenant.name}.svc:8080"
    spawn = partial(spawn_recalls, tenant, MEMORY_MODEL=FORMER, MEMORY_EMBEDDER_URL=url)
    async with RecallLoop("present", spawn, asked) as recalls, asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        writing = group.create_task(write(tenant, stop))
        await recalls.wait_until_complete()
        try:
            await ask_for(tenant, embedding(tenant, "custom", worse))
            refused = await condition(tenant, "SwapRefused", "False")
            assert f"recall@10 over {len(questions(HOMELAB))} questions" in refused.message
            assert tenant.index()["status"]["model"]["active"] == FORMER

            await ask_for(tenant, embedding(tenant, FORMER, SECOND_MODEL_FILE))
            await condition(tenant, "Active", "True")
            await ask_for(tenant, embedding(tenant, MODEL))
            await condition(tenant, "Swapping", "False")
            await condition(tenant, "Active", "True")
            await recalls.wait_for_answers(ANSWERS)
        finally:
            stop.set()
        written = await writing
    assert recalls.faults() == []
    assert tenant.index()["status"]["model"] == {"active": MODEL, "previous": FORMER}
    counts = tenant.counts()
    assert tenant.wait_embedded(counts.expected) == counts.expected
    assert counts.sensitive_embedded == 0
    figures["real_models_swapped"] = {"recalls": len(recalls.answers), "recall_errors": 0, "writes": written}
