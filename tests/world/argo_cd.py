"""Argo CD: it brings an index to Healthy, heals an edit, prunes nothing of the operator's, and removes the index."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

import devcluster
from devcluster import processes
from devcluster.building.argo_cd import ARGO_CD, DEFINITIONS, VERIFIER
from devcluster.building.binaries import Binaries
from devcluster.cluster import Cluster
from devcluster.demo import objects
from devcluster.errors import DevclusterError
from devcluster.retrying import until
from devcluster.settings import REPOSITORY
from tests.support.cluster.memories import rows
from tests.support.cluster.tenants import DATABASES, INDEX, SMALL, Tenant, manifest
from tests.support.waiting import eventually
from tests.world.parts import World

_NAMESPACE = "argocd"
_GIT = "git://127.0.0.1:9418/indexes"
_REDIS_PORT, _MANIFESTS_PORT = "6399", "8081"
_PORTS = (_REDIS_PORT, _MANIFESTS_PORT, "9418")
_APPLICATIONS = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications"
_SECONDS = 300.0
_AUTHOR = ("-c", "user.name=a user", "-c", "user.email=user@example.org")


def prove_argo_cd(world: World) -> str:
    """Return the Application's health, with tracking by labels, where the Application has the name of the index."""
    binaries = Binaries(world.settings, (ARGO_CD,))
    binaries.ensure(world.reporter)
    tenant = _tenant(world)
    source = _Source(Path(tempfile.mkdtemp(prefix="argo-", dir=world.scratch)))
    source.write(manifest(tenant, {"database__name": "app"}))
    with _running(world.cluster, binaries, source):
        world.cluster.apply(_application(tenant))
        _wait(world.cluster, "Healthy", "Synced")
        assert tenant.view().ready
        database = _database(tenant)
        _heals(tenant)
        # A sync with a prune that has nothing to remove: what the operator made is no business of the Application.
        source.write(manifest(tenant, {"database__name": "app", "backfill": {"batchSize": 32}}))
        _refresh(world.cluster)
        eventually(
            lambda: tenant.index()["spec"]["backfill"].get("batchSize"), lambda size: size == 32, what="the sync"
        )
        health = _wait(world.cluster, "Healthy", "Synced")
        assert _database(tenant) == database, "Argo CD has removed or replaced the operator's Database object"
        source.remove()
        _refresh(world.cluster)
        eventually(
            lambda: tenant.kubectl("get", "memoryindexes", "-o", "name"), lambda left: not left, what="the prune"
        )
    tenant.cluster.kubectl("delete", "namespace", tenant.name, _NAMESPACE, "--wait=false")
    return health


def _tenant(world: World) -> Tenant:
    """Make a Postgres cluster whose own database the index is of, so that the operator makes a Database object."""
    postgres = devcluster.create_postgres(
        world.cluster, namespace="argo-dbaas", name="pg-argo", storage="1Gi", database="app", cpu="100m"
    )
    tenant = Tenant(postgres, "app", world.platform.image)
    world.cluster.apply(objects.namespace(tenant.name))
    postgres.allow(tenant.name)
    tenant.write_secret(postgres.application_dsn())
    tenant.store(rows(10))
    return tenant


def _application(tenant: Tenant) -> dict[str, Any]:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": INDEX, "namespace": _NAMESPACE},
        "spec": {
            "project": "default",
            "source": {"repoURL": _GIT, "targetRevision": "main", "path": "."},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": tenant.name},
            "syncPolicy": {
                "automated": {"prune": True, "selfHeal": True, "allowEmpty": True},
                "syncOptions": ["ServerSideApply=true"],
            },
        },
    }


def _wait(cluster: Cluster, health: str, sync: str) -> str:
    """Wait until the Application is so, and return its health."""

    def state() -> tuple[str, str, Any]:
        status = cluster.read(f"{_APPLICATIONS}/{INDEX}").get("status", {})
        return (
            status.get("health", {}).get("status", ""),
            status.get("sync", {}).get("status", ""),
            status.get("conditions", ()),
        )

    found = eventually(state, lambda seen: seen[:2] == (health, sync), what=f"a {health} Application", seconds=_SECONDS)
    return found[0]


def _refresh(cluster: Cluster) -> None:
    """Have Argo CD read the source now, as a webhook of the repository would."""
    annotation = "argocd.argoproj.io/refresh=normal"
    cluster.kubectl("-n", _NAMESPACE, "annotate", "application", INDEX, "--overwrite", annotation)


def _heals(tenant: Tenant) -> None:
    """Edit the index by hand, and wait until it is as in the repository again."""
    patch = json.dumps({"spec": {"embedder": {"resources": {"limits": {"cpu": "2"}}}}})
    tenant.kubectl("patch", "memoryindex", INDEX, "--type=merge", f"--patch={patch}")

    def limit() -> str:
        return str(tenant.index()["spec"]["embedder"]["resources"]["limits"]["cpu"])

    eventually(limit, lambda found: found == SMALL["limits"]["cpu"], what="the healing")


def _database(tenant: Tenant) -> str:
    """Return the uid of the Database object that the operator made."""
    found = tenant.cluster.kubectl_json("-n", tenant.postgres.namespace, "get", DATABASES)["items"]
    (made,) = (item for item in found if item["spec"]["name"] == "app")
    return str(made["metadata"]["uid"])


class _Source:
    """A repository with a MemoryIndex."""

    def __init__(self, directory: Path) -> None:
        self.base = directory
        self._work = directory / "indexes"
        processes.run(["git", "init", "--quiet", "--initial-branch=main", self._work])

    def write(self, index: dict[str, Any]) -> None:
        """Commit this MemoryIndex."""
        (self._work / "index.yaml").write_text(yaml.safe_dump(index), encoding="utf-8")
        self._commit("Change the index")

    def remove(self) -> None:
        """Commit its removal."""
        (self._work / "index.yaml").unlink()
        (self._work / "README").write_text("no index\n", encoding="utf-8")
        self._commit("Remove the index")

    def _commit(self, message: str) -> None:
        processes.run(["git", "add", "--all"], cwd=self._work)
        processes.run(["git", *_AUTHOR, "commit", "--quiet", "--message", message], cwd=self._work)


@contextmanager
def _running(cluster: Cluster, binaries: Binaries, source: _Source) -> Iterator[None]:
    """Run the application controller and the repository server in the cluster's network, with what they need."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}})
    for name in DEFINITIONS:
        path = binaries.directory("argo-cd") / f"{name}.yaml"
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(path))
    cluster.kubectl("wait", "--for=condition=Established", "crd/applications.argoproj.io", "--timeout=60s")
    cluster.apply(*_configuration())
    program = str(binaries.path("argocd"))
    common = ["--redis", f"127.0.0.1:{_REDIS_PORT}"]
    shutil.copy(binaries.directory("argo-cd") / VERIFIER, source.base)
    (source.base / VERIFIER).chmod(0o755)
    search = f"PATH={source.base}:{os.environ['PATH']}"
    commands: dict[str, list[str]] = {
        "redis": ["redis-server", "--port", _REDIS_PORT, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        "git": [
            *("git", "daemon", "--export-all", "--reuseaddr", "--listen=127.0.0.1", "--port=9418"),
            f"--base-path={source.base}",
        ],
        "repo-server": [
            *(
                "env",
                search,
                f"HOME={source.base}",
                "ARGOCD_GPG_ENABLED=false",
                "ARGOCD_BINARY_NAME=argocd-repo-server",
            ),
            *(program, "--port", _MANIFESTS_PORT, "--metrics-port", "8091", *common),
        ],
        "application-controller": [
            *("env", "ARGOCD_BINARY_NAME=argocd-application-controller", "ARGOCD_FAKE_IN_CLUSTER=true"),
            *(program, "--namespace", _NAMESPACE, "--repo-server", f"127.0.0.1:{_MANIFESTS_PORT}"),
            *("--metrics-port", "8092", *common),
        ],
    }
    with ExitStack() as started:
        for name, command in commands.items():
            started.enter_context(_process(cluster, command, source.base / f"{name}.log"))
        try:
            for port in _PORTS:
                until(f"port {port} is listened at", partial(_is_open, cluster, port), seconds=60)
            yield
        except (AssertionError, DevclusterError) as error:
            tails = [f"{name}: {processes.tail((source.base / f'{name}.log').read_text(), 12)}" for name in commands]
            raise AssertionError("\n".join([str(error), *tails])) from error


def _is_open(cluster: Cluster, port: str) -> bool:
    """Return whether a program listens at this port of the node."""
    try:
        cluster.exec_in_network(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"], timeout=5)
    except DevclusterError:
        return False
    return True


@contextmanager
def _process(cluster: Cluster, command: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = cluster.popen_in_network(command, stdout=output, stderr=subprocess.STDOUT, env=dict(os.environ))
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _configuration() -> list[dict[str, Any]]:
    """Return Argo CD's configuration: tracking by labels, and the health of a MemoryIndex as the documentation says."""
    health = (REPOSITORY / "docs" / "gitops" / "argocd-health.lua").read_text(encoding="utf-8")
    settings = {
        "argocd-cm": {
            "application.resourceTrackingMethod": "label",
            "resource.customizations.health.memory-index.dev_MemoryIndex": health,
            "timeout.reconciliation": "30s",
        },
        **{f"argocd-{name}-cm": {} for name in ("rbac", "cmd-params", "tls-certs", "ssh-known-hosts", "gpg-keys")},
    }
    part_of = {"app.kubernetes.io/part-of": "argocd"}
    secret = {"server.secretkey": "bm9ib2R5IGxvZ3MgaW4gaGVyZQ=="}
    return [
        *(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": _NAMESPACE, "labels": part_of},
                "data": data,
            }
            for name, data in settings.items()
        ),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "argocd-secret", "namespace": _NAMESPACE, "labels": part_of},
            "data": secret,
        },
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "AppProject",
            "metadata": {"name": "default", "namespace": _NAMESPACE},
            "spec": {
                "sourceRepos": ["*"],
                "destinations": [{"namespace": "*", "server": "*"}],
                "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
            },
        },
    ]
