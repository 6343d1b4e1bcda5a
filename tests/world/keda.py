"""KEDA scales an embedder by its queue: to nothing, back at a recall, and up under load."""

from pathlib import Path
from typing import Any

import yaml

from devcluster.building.binaries import Binaries
from devcluster.building.keda import KEDA
from devcluster.demo.objects import Object
from devcluster.settings import REPOSITORY
from tests.support.cluster.tenants import INDEX, KEY, SECRET, Tenant
from tests.support.waiting import eventually
from tests.world.parts import World
from tests.world.programs import condition, load_image, plain_namespace, released, wait_available, with_image
from tests.world.scaled import EXPECTED, create_index, drive

_NAMESPACE = "keda"
_SCALED = REPOSITORY / "docs" / "scaling" / "keda.yaml"
_API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io"
_SECONDS = 300.0


def prove_keda(world: World) -> list[int]:
    """Return the numbers of ready pods as they were seen one after the other."""
    platform, cluster = world.platform, world.cluster
    _start(world)
    tenant = Tenant(platform.postgres, "keda-scaling", platform.image)
    pods = create_index(tenant, {"scaling": "External"})
    cluster.apply(*_scaled_objects(tenant))
    seen = drive(tenant, pods)
    assert seen == EXPECTED, f"the numbers of ready pods were {seen}, and not {EXPECTED}"
    tenant.kubectl("delete", "scaledobjects.keda.sh", "--all", "--timeout=120s")
    tenant.remove()
    cluster.kubectl("delete", "apiservice", _API_SERVICE.rpartition("/")[2])
    cluster.kubectl("delete", "namespace", _NAMESPACE, "--wait=false")
    return seen


def _start(world: World) -> None:
    """Run KEDA's operator and its metrics server as KEDA releases them."""
    binaries = Binaries(world.settings, (KEDA,))
    binaries.ensure(world.reporter)
    programs = {"/keda": binaries.path("operator"), "/keda-adapter": binaries.path("adapter")}
    image = load_image(world, "keda", programs)
    found = released(binaries.directory(KEDA.name), KEDA.files)
    definitions = [one for one in found if one["kind"] == "CustomResourceDefinition"]
    others = [one for one in found if one not in definitions]
    for one in others:
        if one["kind"] == "Deployment":
            with_image(one, image)
        if one["metadata"]["name"] == "keda-operator" and one["kind"] == "Deployment":
            # Its admission webhook is a third program, which nothing here needs.
            one["spec"]["template"]["spec"]["containers"][0]["args"].append("--enable-webhook-patching=false")
    world.cluster.apply(plain_namespace(_NAMESPACE), *definitions)
    world.cluster.apply(*others)
    wait_available(world, _NAMESPACE, "keda-operator", "keda-metrics-apiserver")
    eventually(
        lambda: condition(world.cluster.read(_API_SERVICE), "Available"),
        lambda seen: seen.get("status") == "True",
        what="KEDA serves metrics to the API server",
        seconds=_SECONDS,
    )


def _scaled_objects(tenant: Tenant) -> list[Object]:
    """Return the objects of the docs for the tenant's index, with shorter times."""
    text = Path(_SCALED).read_text(encoding="utf-8")
    text = text.replace("claude-memory-db-creds", SECRET).replace("DATABASE_URL", KEY)
    text = text.replace("namespace: claude-memory", f"namespace: {tenant.name}")
    text = text.replace(".claude-memory.svc", f".{tenant.name}.svc").replace("claude-memory", INDEX)
    found: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    scaled = next(one for one in found if one["kind"] == "ScaledObject")["spec"]
    scaled["cooldownPeriod"] = 20
    scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 20
    return found
