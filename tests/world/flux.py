"""Flux brings an index from an OCI registry to Ready by our health rules, and removes it with its source."""

import json
import tarfile
from pathlib import Path
from typing import Any

import yaml

from devcluster.building.binaries import Binaries
from devcluster.building.flux import FLUX, KUSTOMIZE_CONTROLLER, SOURCE_CONTROLLER
from devcluster.demo.objects import Object
from devcluster.postgres import database_object
from devcluster.release.programs import ensure_programs
from devcluster.settings import REPOSITORY
from tests.support.cluster.memories import rows
from tests.support.cluster.tenants import Tenant, manifest
from tests.support.waiting import eventually
from tests.world.parts import World
from tests.world.programs import condition, load_image, plain_namespace, released, wait_available, with_image

_NAMESPACE, _NAME = "flux-system", "indexes"
_REGISTRY = f"registry.{_NAMESPACE}.svc.cluster.local:5000"
_HEALTH = REPOSITORY / "docs" / "gitops" / "flux-health.yaml"
_KUSTOMIZATION = f"/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{_NAMESPACE}/kustomizations/{_NAME}"
_REGISTRY_CONFIG = "{version: 0.1, storage: {inmemory: {}}, http: {addr: ':5000'}}"
_MEDIA = "application/vnd.cncf.flux"
_SECONDS = 300.0


def prove_flux(world: World) -> str:
    """Return the condition in which Flux reports the Kustomization that holds the index."""
    platform, cluster = world.platform, world.cluster
    tenant = Tenant(platform.postgres, "flux", platform.image)
    tenant.create()
    tenant.store(rows(20))
    cluster.apply(database_object(tenant.postgres, tenant.database))
    cluster.apply(plain_namespace(_NAMESPACE))
    _start_registry(world)
    _start_controllers(world)
    kept: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kept", "namespace": tenant.name},
    }
    _publish(world, kept, manifest(tenant, {}))
    cluster.apply(_source(), _kustomization())

    eventually(
        lambda: "health checks" in condition(_read(world), "Reconciling").get("message", ""),
        bool,
        what="Flux waits for the health of the index",
        seconds=_SECONDS,
    )
    assert condition(_read(world), "Ready")["status"] != "True", "Flux waits for an index and calls it ready"
    _wait_applied(world)
    assert tenant.view().ready, f"Flux calls an index ready that is not: {tenant.view()}"

    _publish(world, kept)
    _await_removal(tenant)
    _wait_applied(world)
    tenant.kubectl("get", "configmap", "kept")
    for kind in ("kustomizations.kustomize.toolkit.fluxcd.io", "ocirepositories.source.toolkit.fluxcd.io"):
        cluster.kubectl("-n", _NAMESPACE, "delete", kind, _NAME, "--timeout=120s")
    cluster.kubectl("delete", "namespace", _NAMESPACE, "--wait=false")
    tenant.remove()
    return "Ready"


def _start_registry(world: World) -> None:
    binaries = ensure_programs(world.settings, world.reporter)
    image = load_image(world, "registry", {"/registry": binaries.path("registry")})
    labels = {"app": "registry"}
    metadata = {"name": "registry", "namespace": _NAMESPACE}
    container = {
        "name": "registry",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/registry", "serve", "/config/config.yaml"],
        "readinessProbe": {"httpGet": {"path": "/v2/", "port": 5000}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "config", "configMap": {"name": "registry"}}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    world.cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": _REGISTRY_CONFIG}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"port": 5000}]},
        },
    )
    wait_available(world, _NAMESPACE, "registry")


def _start_controllers(world: World) -> None:
    """Run Flux' two controllers as Flux releases them, with the rights that `flux install` gives."""
    binaries = Binaries(world.settings, FLUX)
    binaries.ensure(world.reporter)
    names = []
    for tool in (SOURCE_CONTROLLER, KUSTOMIZE_CONTROLLER):
        (name,) = tool.programs
        directory = binaries.directory(tool.name)
        image = load_image(world, name, {f"/{name}": binaries.path(name)}, f"/{name}")
        found = released(directory, tool.files)
        world.cluster.apply(*(one for one in found if one["kind"] == "CustomResourceDefinition"))
        for one in found:
            if one["kind"] != "CustomResourceDefinition":
                one["metadata"]["namespace"] = _NAMESPACE
            if one["kind"] == "Deployment":
                with_image(one, image)
                one["spec"]["template"]["spec"]["serviceAccountName"] = name
        world.cluster.apply(_account(name), _binding(name), *found)
        names.append(name)
    wait_available(world, _NAMESPACE, *names)


def _account(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": _NAMESPACE}}


def _binding(name: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"flux-{name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": _NAMESPACE}],
    }


def _publish(world: World, *manifests: Object) -> None:
    """Push these objects to the registry in the form of `flux push artifact`."""
    folder = world.scratch / "flux"
    folder.mkdir(exist_ok=True)
    for number, one in enumerate(manifests):
        (folder / f"{number}.yaml").write_text(yaml.safe_dump(one), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({}), encoding="utf-8")
    with tarfile.open(folder / "content.tgz", "w:gz") as archive:
        for number in range(len(manifests)):
            archive.add(folder / f"{number}.yaml", f"{number}.yaml")
    oras = ensure_programs(world.settings, world.reporter).path("oras")
    world.cluster.exec_in_network(
        [
            *("env", "-C", str(folder), str(oras), "push", "--plain-http", "--no-tty", f"{_REGISTRY}/{_NAME}:latest"),
            *("--config", f"config.json:{_MEDIA}.config.v1+json", f"content.tgz:{_MEDIA}.content.v1.tar+gzip"),
        ],
        timeout=120,
    )


def _source() -> Object:
    return {
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "OCIRepository",
        "metadata": {"name": _NAME, "namespace": _NAMESPACE},
        "spec": {"interval": "5s", "url": f"oci://{_REGISTRY}/{_NAME}", "ref": {"tag": "latest"}, "insecure": True},
    }


def _kustomization() -> Object:
    """Return a Kustomization with the file of docs/gitops as a part of its spec, as that file says."""
    health = yaml.safe_load(Path(_HEALTH).read_text(encoding="utf-8"))
    source = {"kind": "OCIRepository", "name": _NAME}
    return {
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"name": _NAME, "namespace": _NAMESPACE},
        "spec": {"interval": "10m", "path": "./", "prune": True, "sourceRef": source, **health},
    }


def _read(world: World) -> dict[str, Any]:
    return dict(world.cluster.read(_KUSTOMIZATION))


def _wait_applied(world: World) -> None:
    """Wait until Flux calls the Kustomization ready with what was published last."""
    digest = _published(world)

    def state() -> tuple[str, str, str]:
        found = _read(world)
        ready = condition(found, "Ready")
        return found.get("status", {}).get("lastAppliedRevision", ""), ready.get("status", ""), ready.get("message", "")

    eventually(
        state, lambda seen: digest in seen[0] and seen[1] == "True", what="the Kustomization is Ready", seconds=_SECONDS
    )


def _published(world: World) -> str:
    oras = ensure_programs(world.settings, world.reporter).path("oras")
    command = [str(oras), "resolve", "--plain-http", f"{_REGISTRY}/{_NAME}:latest"]
    return world.cluster.exec_in_network(command, timeout=60).strip()


def _await_removal(tenant: Tenant) -> None:
    eventually(
        lambda: tenant.kubectl("get", "memoryindexes", "-o", "name").strip(),
        lambda found: not found,
        what="Flux removes the index that its source no longer has",
        seconds=_SECONDS,
    )
