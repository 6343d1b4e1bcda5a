"""An infrastructure repository with our unit in it, and the cluster that OpenTofu applies the unit to.

Of External Secrets only the definition is installed. The node offers the GPU and its memory seat to the scheduler
alone, so the embedder computes on the processor.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import devcluster
from devcluster.building.opentofu import OpenTofu, ensure_opentofu
from devcluster.cluster import Cluster
from devcluster.demo import objects
from devcluster.demo.environment import DIMENSIONS, MODEL
from devcluster.postgres import Postgres, create_database, create_postgres, database_object
from devcluster.progress import ConsoleReporter
from tests.delivery.terraform.stack import DATABASE, DEFINITION, NAMESPACE, ROWS, SEAT, Stack
from tests.delivery.terraform.terragrunt import Unit
from tests.support.cluster.tenants import TABLE
from tests.support.documents import commands

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tofu() -> OpenTofu:
    """OpenTofu and its providers, which the hook of this folder has built."""
    return ensure_opentofu(devcluster.Settings(), ConsoleReporter())


@pytest.fixture(scope="module")
def infrastructure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An infrastructure repository into which charts, modules and unit were copied by the documented commands."""
    repository = tmp_path_factory.mktemp("infrastructure")
    shutil.copy(Path(__file__).parent / "infrastructure" / "terragrunt.hcl", repository)
    lines = [line for line in commands(ROOT / "docs" / "install.md") if "$INFRA" in line]
    assert [line.split()[0] for line in lines] == ["mkdir", "cp", "cp", "cp"]
    for line in lines:
        subprocess.run(["sh", "-ec", line], cwd=ROOT, env={**os.environ, "INFRA": str(repository)}, check=True)
    return repository


@pytest.fixture(scope="module")
def postgres(cluster: Cluster) -> Iterator[Postgres]:
    """The Cluster of another team in another namespace, which consents to its use from ours, and our database in it."""
    made = create_postgres(cluster, namespace="terraform-databases", name="pg-shared", storage="1Gi")
    made.allow(NAMESPACE)
    yield made
    cluster.kubectl("delete", "namespace", made.namespace, "--wait=false")


@pytest.fixture(scope="module")
def dsn(cluster: Cluster, postgres: Postgres) -> str:
    """The connection string of a database that holds memories already and in which CloudNativePG installs pgvector."""
    made = create_database(cluster, postgres, DATABASE)
    cluster.apply(database_object(postgres, DATABASE))
    texts = f"SELECT 'The backup of machine ' || n || ' ran' FROM generate_series(1, {ROWS}) n"
    postgres.psql(f"SET ROLE {DATABASE};\n{TABLE}\nINSERT INTO memories (content) {texts};", DATABASE)
    return made


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[str]:
    """The name of the node, which offers a GPU and its memory seat under the label that GPU nodes have."""
    (name, *_) = cluster.nodes()
    for resource, quantity in SEAT.items():
        cluster.patch_extended_resource(resource, quantity)
    cluster.kubectl("label", "node", name, "nvidia.com/gpu.present=true")
    yield name
    cluster.kubectl("label", "node", name, "nvidia.com/gpu.present-")
    for resource in SEAT:
        cluster.patch_extended_resource(resource, None)


@pytest.fixture(scope="module")
def surroundings(cluster: Cluster, node: str, tofu: OpenTofu) -> Iterator[None]:
    """What other stacks of the repository own: our namespace, External Secrets' definition, the GPU's classes."""
    cluster.kubectl("apply", "--server-side", "--filename", str(tofu.definition))
    cluster.kubectl("wait", "--for=condition=Established", "crd/externalsecrets.external-secrets.io", "--timeout=240s")
    cluster.apply(
        objects.namespace(NAMESPACE),
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "nvidia"},
            "handler": "runc",
        },
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "gpu-workload"},
            "value": 1000,
        },
    )
    yield
    cluster.kubectl("delete", "namespace", NAMESPACE)
    cluster.kubectl("delete", "runtimeclass/nvidia", "priorityclass/gpu-workload")
    cluster.kubectl("delete", "crd", "externalsecrets.external-secrets.io")
    cluster.kubectl("delete", "crd", DEFINITION, "--ignore-not-found")


@pytest.fixture(scope="module")
def settings(cluster: Cluster, tofu: OpenTofu, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of OpenTofu, which names its program, the providers and the cluster."""
    return {
        "TOFU": str(tofu.program),
        "TF_CLI_CONFIG_FILE": str(tofu.write_mirror(tmp_path_factory.mktemp("tofu"))),
        "TF_CLI_ARGS": "-no-color",
        "TF_IN_AUTOMATION": "1",
        "TF_VAR_kube_config_path": str(cluster.kubeconfig),
    }


@pytest.fixture(scope="module")
def stack(infrastructure: Path, postgres: Postgres, surroundings: None, settings: dict[str, str]) -> Iterator[Stack]:
    """The unit with the inputs of this cluster; what a failed test leaves of it is destroyed at the end."""
    images = devcluster.load_images(postgres.cluster)
    directory = infrastructure / "stacks" / "memory-index"
    adapt(directory / "terragrunt.hcl", images)
    unit = Unit(directory, infrastructure)
    unit.generate()
    outputs = {"dbaas": {"cluster_name": postgres.name, "cluster_namespace": postgres.namespace}}
    made = Stack(unit, settings, outputs)
    yield made
    if made.state.exists():
        made.run("destroy", "-auto-approve", "-input=false")


def adapt(file: Path, images: devcluster.ProjectImages) -> None:
    """Set the inputs as the user of this cluster does: its images, the model in the embedder's image, no real GPU."""
    text = file.read_text(encoding="utf-8")
    for name, image in (("operator_image", images.operator), ("embedder_image", images.embedder)):
        repository, _, tag = image.rpartition(":")
        block = f'{name} = {{ repository = "{repository}", tag = "{tag}" }}'
        text = replaced(text, rf"{name} = {{.*?}}", block)
    model = f'embedding = {{ model = "{MODEL}", dimensions = {DIMENSIONS} }}'
    text = replaced(text, r"embedding = {.*?\n  }", model)
    text = replaced(text, r"gpu = {", "gpu = {\n    layers = 0")
    file.write_text(text, encoding="utf-8")


def replaced(text: str, pattern: str, by: str) -> str:
    """The text with the one match of the pattern replaced."""
    result, count = re.subn(pattern, lambda _: by, text, flags=re.DOTALL)
    assert count == 1, pattern
    return result
