"""Runs the programs of others as pods: images with nothing else in them, and the objects that their makers release."""

import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from devcluster.building.binaries import go_architecture
from devcluster.demo.objects import Object
from devcluster.images.archives import ImageConfig, write_archive
from tests.world.parts import World

_USER = "65532:65532"
_REQUESTS = {"requests": {"cpu": "20m", "memory": "64Mi"}}
_SECONDS = 300


def load_image(world: World, name: str, programs: Mapping[str, Path], entrypoint: str = "") -> str:
    """Load an image with these programs, by their paths in it, into the node, and return its name."""
    image, layer, archive = f"localhost/{name}:met", world.scratch / f"{name}-layer.tar", world.scratch / f"{name}.tar"
    with tarfile.open(layer, "w") as content:
        for inside, program in programs.items():
            content.add(program, inside.lstrip("/"))
    config = ImageConfig((entrypoint,) if entrypoint else (), _USER, architecture=go_architecture())
    write_archive(archive, image, layer, config)
    world.cluster.load(archive)
    for file in (layer, archive):
        file.unlink()
    return image


def plain_namespace(name: str) -> Object:
    """Return a namespace in which pods may run as their makers mean them to."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def released(directory: Path, names: Iterable[str]) -> list[Object]:
    """Return the objects of files that were kept beside programs."""
    texts = ((directory / name).read_text(encoding="utf-8") for name in names)
    return [entry for text in texts for entry in yaml.safe_load_all(text) if entry]


def with_image(deployment: Object, image: str) -> Object:
    """Return a released Deployment with our image, and with requests that leave room on a small node."""
    pod = deployment["spec"]["template"]["spec"]
    pod["containers"] = [
        {**container, "image": image, "imagePullPolicy": "IfNotPresent", "resources": _REQUESTS}
        for container in pod["containers"]
    ]
    return deployment


def wait_available(world: World, namespace: str, *deployments: str) -> None:
    """Wait until each of these Deployments has all its pods."""
    for name in deployments:
        arguments = ("rollout", "status", f"deployment/{name}", f"--timeout={_SECONDS}s")
        world.cluster.kubectl("-n", namespace, *arguments, timeout=_SECONDS + 30)


def condition(entry: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Return a condition of an object's status; an empty one if there is none."""
    conditions = entry.get("status", {}).get("conditions", ())
    return next((dict(one) for one in conditions if one["type"] == kind), {})
