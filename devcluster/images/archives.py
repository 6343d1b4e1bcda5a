"""Writes image archives in the format of `docker save`, which containerd, buildah, docker and podman all read.

No image builder is needed, because an image of one layer consists of a tar file, two JSON documents and digests. The
same input gives the same bytes.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.building.digests import sha256_of


@dataclass(frozen=True)
class ImageConfig:
    """The settings that an image gives to its containers."""

    entrypoint: tuple[str, ...] = ()
    user: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    architecture: str = "amd64"


def write_archive(target: Path, name: str, layer: Path, config: ImageConfig) -> None:
    """Write an archive of one image with one layer; the file gets its name only when it is complete."""
    digest = sha256_of(layer)
    document = json.dumps(_document(config, digest), sort_keys=True).encode()
    config_name = f"{hashlib.sha256(document).hexdigest()}.json"
    layer_name = f"{digest}/layer.tar"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": [layer_name]}]).encode()
    partial = target.with_name(f".{target.name}.partial")
    with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as archive:
        _add(archive, config_name, document)
        information = tarfile.TarInfo(layer_name)
        information.size = layer.stat().st_size
        with layer.open("rb") as content:
            archive.addfile(information, content)
        _add(archive, "manifest.json", manifest)
    partial.rename(target)


def layers_of(archive: Path) -> Iterator[tarfile.TarFile]:
    """Open the layers of the first image of an archive one after the other, the lowest one first."""
    with tarfile.open(archive) as content:
        manifest = content.extractfile("manifest.json")
        entries = json.load(manifest) if manifest is not None else []
        for name in entries[0]["Layers"] if entries else ():
            with tarfile.open(fileobj=content.extractfile(name)) as layer:
                yield layer


def image_names(archive: Path) -> tuple[str, ...]:
    """Return the names of the images in an archive."""
    with tarfile.open(archive) as content:
        manifest = content.extractfile("manifest.json")
        entries = json.load(manifest) if manifest is not None else []
    return tuple(name for entry in entries for name in entry.get("RepoTags") or ())


def _document(config: ImageConfig, digest: str) -> dict[str, object]:
    run = {
        "Entrypoint": list(config.entrypoint) or None,
        "User": config.user,
        "Env": [f"{key}={value}" for key, value in config.environment.items()],
        "WorkingDir": "/",
    }
    return {
        "architecture": config.architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "devcluster"}],
    }


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    information = tarfile.TarInfo(name)
    information.size = len(data)
    archive.addfile(information, io.BytesIO(data))
