"""The commands of the pages about installing and upgrading are executed as they stand there, on one cluster.

The namespaces, Secrets and databases that the pages name exist in the cluster. Two commands are replaced: a command
that would watch for ever is ended after some seconds, and psql runs in the pod of Postgres, because this machine need
not have it. Commands of `memory` and `make` have tests of their own.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import devcluster
from devcluster.cluster import Cluster
from devcluster.demo import objects
from devcluster.node.pki import Authority
from devcluster.postgres import create_database, create_postgres
from devcluster.settings import REPOSITORY
from tests.delivery.pages import read_sections, run_script

PAGES = {name: REPOSITORY / "docs" / f"{name}.md" for name in ("install", "upgrade")}
SECTIONS = {(name, heading): blocks for name, path in PAGES.items() for heading, blocks in read_sections(path).items()}
ORDER = (
    ("install", "CloudNativePG"),
    ("install", "With helm"),
    ("upgrade", "Upgrade the operator"),
    ("upgrade", "Check"),
    ("install", "Upgrading"),
    ("install", "Plain Postgres"),
    ("install", "Uninstalling"),
)
ELSEWHERE = {
    ("install", "From a registry"): "tests/world/release.py runs them against a registry",
    ("install", "Air gap"): "tests/unit/chart/test_parent_charts.py runs it",
    ("install", "A certificate in place of a password"): "tests/e2e/test_e2e_client_certificate.py has such an object",
    ("install", "Images"): "pushing needs Docker and a registry; test_images.py builds them",
    ("install", "With Terraform and Terragrunt"): "the tests of tests/delivery/terraform apply the copied stack",
    ("upgrade", "With Terragrunt"): "tests/unit/repository/test_terraform_modules.py runs them",
    ("upgrade", "Without the operator"): "commands of `memory`",
    ("upgrade", "How this is tested"): "targets of make",
}
SECRETS = {"claude-memory": "claude-memory-db-creds", "notes": "embedder-key", "journal": "journal-dsn"}
PSQL = 'psql() { kubectl -n dbaas exec -i pg-cluster-1 -c postgres -- psql "$@"; }'
WATCH = re.compile(r"^(kubectl .*--watch)$", re.MULTILINE)
OTHERS = re.compile(r"^(memory|make) .*\n", re.MULTILINE)


@pytest.fixture(scope="module")
def directory(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the chart, the examples and the page's values.yaml; what the pages name is in the cluster."""
    images = devcluster.load_images(cluster)
    postgres = create_postgres(cluster, storage="1Gi")
    for namespace, secret in SECRETS.items():
        dsn = create_database(cluster, postgres, namespace.replace("-", "_"))
        cluster.apply(objects.namespace(namespace), unlabelled_secret(namespace, secret, dsn))
    directory = tmp_path_factory.mktemp("pages")
    for name in ("charts", "examples"):
        (directory / name).symlink_to(REPOSITORY / name)
    values = written_values()
    for name in ("operator", "embedder"):
        repository, _, tag = getattr(images, name).rpartition(":")
        values[name]["image"] = {"repository": repository, "tag": tag}
    (directory / "ca.crt").write_bytes(Authority().certificate)
    (directory / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    yield directory
    for namespace in (*SECRETS, postgres.namespace):
        cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait", "--timeout=300s")


def unlabelled_secret(namespace: str, name: str, dsn: str) -> dict[str, Any]:
    """A Secret that does not say yet what it may be used for."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"DATABASE_URL": dsn}}


def written_values() -> dict[str, Any]:
    """The values that the page proposes, where the images are not those of this machine."""
    text = PAGES["install"].read_text(encoding="utf-8").split("## With helm")[1]
    found = re.search(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return dict(yaml.safe_load(found[1]))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("section", ORDER, ids=" - ".join)
def test_the_commands_of_a_section_succeed_one_after_the_other(
    section: tuple[str, str], directory: Path, cluster: Cluster
) -> None:
    commands = OTHERS.sub("", "".join(SECTIONS[section]))
    commands = WATCH.sub(r"timeout 5 \1 || test $? = 124", commands)
    run_script(f"{PSQL}\n{commands}", cluster, " - ".join(section), directory)


def test_nothing_but_the_users_own_is_left_after_uninstalling(directory: Path, cluster: Cluster) -> None:
    """No object of the operator, no role and no definition; the Secrets that the pages label are the user's."""
    labels = "app.kubernetes.io/managed-by=memory-operator"
    assert cluster.kubectl("get", "deployments,jobs,services", "-A", "-l", labels, "-o", "name") == ""
    assert cluster.kubectl("get", "crd", "memoryindexes.memory-index.dev", "--ignore-not-found", "-o", "name") == ""
    for namespace, secret in SECRETS.items():
        cluster.kubectl("-n", namespace, "get", "secret", secret)
