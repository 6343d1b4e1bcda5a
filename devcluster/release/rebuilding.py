"""Builds a published release again, whatever is cached, and names what differs.

Whoever has the commit can thus check that what is published was made from it and from nothing else.
"""

import hashlib
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import cast

from devcluster.building.binaries import Binaries
from devcluster.building.digests import sha256_of
from devcluster.images.archives import layers_of
from devcluster.images.project import CUDA_EMBEDDER, EMBEDDER, OPERATOR, build_for
from devcluster.progress import Reporter
from devcluster.release.artifacts import Artifact, Release
from devcluster.release.packages import build_wheels, pack_chart, pack_plugin
from devcluster.release.programs import ensure_programs
from devcluster.release.publishing import CHART, PLUGIN, WHEELS, released_images
from devcluster.release.registry import Registry
from devcluster.release.source import read_source
from devcluster.settings import REPOSITORY, Settings

_LISTED = 20
_REMOVED = ".wh."
_IMAGES = {"memory-operator": OPERATOR, "memory-embedder": EMBEDDER, "memory-embedder-cuda": CUDA_EMBEDDER}


@dataclass(frozen=True)
class Comparison:
    """One artifact that was built twice; `differing` names files of it that differ, or is empty where all are equal."""

    name: str
    differing: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether both builds have the same digest."""
        return not self.differing


def rebuild(directory: Path, *, settings: Settings, reporter: Reporter) -> list[Comparison]:
    """Build the release that lies in a directory again from this checkout, and compare all its artifacts."""
    release = Release.read(directory)
    source = read_source(REPOSITORY, release.version)
    binaries = ensure_programs(settings, reporter)
    helm = Binaries(settings).path("helm")
    registry = Registry(release.registry, helm, binaries)
    pack: dict[str, Callable[[Path], object]] = {
        WHEELS: lambda target: build_wheels(source, target),
        PLUGIN: lambda target: pack_plugin(source, target),
        CHART: lambda target: pack_chart(source, target, released_images(release.artifacts), helm),
    }
    comparisons = []
    with tempfile.TemporaryDirectory(prefix="rebuild-") as scratch:
        again = Path(scratch)
        for artifact in release.artifacts:
            if artifact.platform == "index":
                continue  # it consists of the digests of the images alone
            if artifact.platform:
                comparisons.append(_image(artifact, again, registry, settings, reporter))
            else:
                comparisons.append(_files(artifact, directory, again / artifact.name, pack[artifact.name]))
    return comparisons


def _image(artifact: Artifact, again: Path, registry: Registry, settings: Settings, reporter: Reporter) -> Comparison:
    architecture = artifact.platform.rpartition("/")[2]
    archive = again / f"{artifact.name}-{architecture}.tar"
    build_for(_IMAGES[artifact.name], architecture, settings, reporter, target=archive)
    if registry.digest_of_archive(archive) == artifact.digest:
        return Comparison(artifact.key)
    differing = differing_files(files_of_image(Path(artifact.file)), files_of_image(archive))
    return Comparison(artifact.key, differing or ("the image's configuration",))


def _files(artifact: Artifact, directory: Path, again: Path, pack: Callable[[Path], object]) -> Comparison:
    again.mkdir()
    pack(again)
    if artifact.name == CHART:
        first = {artifact.file: sha256_of(directory / artifact.file)}
    else:
        first = {path.name: sha256_of(path) for path in (directory / artifact.file).iterdir()}
    second = {path.name: sha256_of(path) for path in again.iterdir()}
    return Comparison(artifact.key, differing_files(first, second))


def differing_files(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[str, ...]:
    """Return the first twenty names whose digests differ, or which only one of the two has."""
    names = sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
    more = (f"and {len(names) - _LISTED} more",) if len(names) > _LISTED else ()
    return (*names[:_LISTED], *more)


def files_of_image(archive: Path) -> dict[str, str]:
    """Return the digest of each entry of an image, which covers its content, mode, owner and target, by its path."""
    found: dict[str, str] = {}
    for entry, digest in _entries(archive):
        path = entry.name.removeprefix("./").lstrip("/")
        parent, _, name = path.rpartition("/")
        if name.startswith(_REMOVED):
            found.pop("/".join(filter(None, (parent, name.removeprefix(_REMOVED)))), None)
        else:
            found[path] = digest
    return found


def _entries(archive: Path) -> Iterator[tuple[tarfile.TarInfo, str]]:
    for layer in layers_of(archive):
        for entry in layer:
            about = f"{entry.type!r} {entry.mode:o} {entry.uid} {entry.gid} {entry.linkname}"
            whole = hashlib.sha256(about.encode())
            content = layer.extractfile(entry) if entry.isfile() else None
            if content is not None:
                whole.update(hashlib.file_digest(cast("BufferedReader", content), "sha256").digest())
            yield entry, whole.hexdigest()
