"""Publishes a release: images for each platform, wheels, the chart and the plugin of kubectl, all signed."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from devcluster.building.binaries import Binaries
from devcluster.errors import DevclusterError
from devcluster.images.contents import read_contents
from devcluster.images.installed import installed_items
from devcluster.images.materials import write_materials
from devcluster.images.project import CUDA_EMBEDDER, EMBEDDER, OPERATOR, ProjectImage, build_for, require_pinned_base
from devcluster.progress import Reporter
from devcluster.release.artifacts import Artifact, Release
from devcluster.release.notes import write_notes
from devcluster.release.packages import build_wheels, pack_chart, pack_plugin
from devcluster.release.programs import ensure_programs
from devcluster.release.provenance import provenance
from devcluster.release.registry import Registry, Signer
from devcluster.release.source import Source, read_notes, read_source
from devcluster.settings import REPOSITORY, Settings

ARCHITECTURES = ("amd64", "arm64")
CHART, WHEELS, PLUGIN = "chart", "wheels", "kubectl-memory-index"
# A release is built with the programs of a checkout by whoever has the key.
_BUILDER = "https://memory-index.dev/release/make"
_IMAGES = {OPERATOR.key: "memory-operator", EMBEDDER.key: "memory-embedder", CUDA_EMBEDDER.key: "memory-embedder"}


class Publishing:
    """One release on its way to a registry; `directory` receives everything that is published."""

    def __init__(self, source: Source, version: str, registry: Registry, signer: Signer, directory: Path) -> None:
        self._source = source
        self._version = version
        self._registry = registry
        self._signer = signer
        self._directory = directory
        self._began = time.time()

    def images(self, image: ProjectImage, archives: dict[str, Path]) -> list[Artifact]:
        """Push an image for each architecture, and the list of its platforms."""
        name, suffix = _IMAGES[image.key], "-cuda" if image is CUDA_EMBEDDER else ""
        pushed = []
        for architecture, archive in archives.items():
            reference = self._registry.reference(name, f"{self._version}{suffix}-{architecture}")
            digest = self._registry.push_image(archive, reference)
            pushed.append(Artifact(f"{name}{suffix}", reference, digest, f"linux/{architecture}", str(archive)))
        reference = self._registry.reference(name, f"{self._version}{suffix}")
        index = Artifact(f"{name}{suffix}", reference, self._registry.push_index(pushed, reference), "index")
        return [index, *pushed]

    def chart(self, images: Sequence[Artifact], helm: Path) -> Artifact:
        """Pack the chart with the digests of the images in it, and push it."""
        archive = pack_chart(self._source, self._directory, released_images(images), helm)
        reference = self._registry.reference("charts/memory-index", self._version)
        return Artifact(CHART, reference, self._registry.push_chart(archive, "charts"), file=archive.name)

    def files(self, name: str, files: Sequence[Path]) -> Artifact:
        """Push files of one directory as one artifact."""
        reference = self._registry.reference(name, self._version)
        created = datetime.fromtimestamp(self._source.committed, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        digest = self._registry.push_files(
            files, reference, kind=f"application/vnd.memory-index.{name}", created=created
        )
        return Artifact(name, reference, digest, file=files[0].parent.name)

    def prove(self, artifacts: Sequence[Artifact], platforms: Iterable[str]) -> None:
        """Sign each digest; attach the provenance of a release for these platforms, and bills of materials to images.

        A signature comes last, so that what is signed has all the rest.
        """
        statement = self._directory / "provenance.json"
        text = provenance(
            self._source,
            version=self._version,
            registry=self._registry.prefix,
            platforms=platforms,
            builder=_BUILDER,
            began=self._began,
            ended=time.time(),
        )
        statement.write_text(text, encoding="utf-8")
        for artifact in artifacts:
            self._signer.attest(artifact, "slsaprovenance1", statement)
            if artifact.platform.startswith("linux/"):
                self._signer.attest(artifact, "cyclonedx", self._materials(artifact))
            self._signer.sign(artifact)

    def _materials(self, image: Artifact) -> Path:
        contents = read_contents(Path(image.file))
        target = self._directory / f"{image.name}-{image.platform.rpartition('/')[2]}.cdx.json"
        digest = image.digest.removeprefix("sha256:")
        target.write_text(write_materials(contents, installed_items(contents), digest), encoding="utf-8")
        return target


def released_images(artifacts: Iterable[Artifact]) -> dict[str, str]:
    """Return the references by digest of the images that the chart installs, by the repositories in its values."""
    return {
        f"localhost/{one.name}": one.by_digest
        for one in artifacts
        if one.platform == "index" and one.name in {"memory-operator", "memory-embedder"}
    }


def publish(
    version: str,
    prefix: str,
    key: str,
    directory: Path,
    *,
    architectures: Sequence[str],
    cuda: bool,
    settings: Settings,
    reporter: Reporter,
) -> Release:
    """Publish the release of this checkout below a registry's prefix, and return what was published.

    Raises:
        DevclusterError: the checkout cannot be released, its base image is named by its tag alone, the registry has
            this version already, or a step failed.
    """
    source = read_source(REPOSITORY, version)
    require_pinned_base(settings)
    binaries = ensure_programs(settings, reporter)
    helm = Binaries(settings).path("helm")
    registry = Registry(prefix.rstrip("/"), helm, binaries)
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise DevclusterError(f"{directory} is not empty", remedy="name another directory, or remove it")
    signer = Signer(key, binaries.path("cosign"), directory)
    chart = registry.reference("charts/memory-index", version)
    # The chart is pushed last and signed last: where it is signed, the release is complete; else it is done over.
    if registry.digest(chart) and signer.is_signed(chart):
        raise DevclusterError(
            f"{prefix} has version {version} already", remedy="what is published stays: release a new version"
        )
    publishing = Publishing(source, version, registry, signer, directory)
    wanted = {OPERATOR: architectures, EMBEDDER: architectures, **({CUDA_EMBEDDER: ("amd64",)} if cuda else {})}
    artifacts = list[Artifact]()
    for image, built_for in wanted.items():
        archives = {one: build_for(image, one, settings, reporter) for one in built_for}
        with reporter.step(f"Push {_IMAGES[image.key]} for {' and '.join(archives)}"):
            artifacts += publishing.images(image, archives)
    platforms = {one.platform for one in artifacts if one.platform.startswith("linux/")}
    with reporter.step("Push wheels and plugin"):
        artifacts += [
            publishing.files(WHEELS, build_wheels(source, directory / WHEELS)),
            publishing.files(PLUGIN, pack_plugin(source, directory / PLUGIN)),
        ]
    with reporter.step(f"Sign {len(artifacts)} digests, with provenance and bills of materials"):
        publishing.prove(artifacts, platforms)
    with reporter.step("Push and sign the chart"):
        artifacts.append(publishing.chart(artifacts, helm))
        publishing.prove(artifacts[-1:], platforms)
    release = Release(version, source.commit, source.committed, registry.prefix, tuple(artifacts))
    (directory / "cosign.pub").write_text(signer.public_key(), encoding="utf-8")
    (directory / "notes.md").write_text(write_notes(release, read_notes(REPOSITORY, version)), encoding="utf-8")
    release.write(directory)
    return release
