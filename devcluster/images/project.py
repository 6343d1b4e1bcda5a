"""Builds this project's images from its two Dockerfiles, and caches them by the digest of everything they depend on."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from devcluster.building import versions
from devcluster.building.binaries import Binaries
from devcluster.building.digests import digest_of_files
from devcluster.building.wheel import wheel_path
from devcluster.cluster import Cluster
from devcluster.images.bases import BaseImages
from devcluster.images.builders import Build, Builder, choose_builder
from devcluster.locks import locked
from devcluster.progress import ConsoleReporter, Reporter
from devcluster.settings import REPOSITORY, Settings

_KEPT_ARCHIVES = 4
_MODEL = "all-MiniLM-L6-v2.gguf"


@dataclass(frozen=True)
class ProjectImage:
    """One of this project's images; `inputs` are the files of the repository that it depends on."""

    key: str
    name: str
    dockerfile: str
    target: str | None
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class ProjectImages:
    """The names of this project's images in a cluster."""

    operator: str
    embedder: str


OPERATOR = ProjectImage(
    "operator",
    "localhost/memory-operator:dev",
    "Dockerfile.operator",
    None,
    (
        "Dockerfile.operator",
        ".dockerignore",
        "requirements/build.txt",
        "requirements/operator.txt",
        "operator",
        "recall",
        "migrations",
    ),
)
EMBEDDER = ProjectImage(
    "embedder",
    "localhost/memory-embedder:dev",
    "Dockerfile.embedder",
    "cpu",
    (
        "Dockerfile.embedder",
        ".dockerignore",
        "requirements/build.txt",
        "requirements/embedder.txt",
        "requirements/llama.txt",
        "requirements/llama-build.txt",
        "requirements/model.txt",
        "embedder-service",
    ),
)


def build_images(settings: Settings | None = None, reporter: Reporter | None = None) -> dict[str, Path]:
    """Build this project's images unless they are cached, and return the path of each archive by image name."""
    settings, reporter = settings or Settings(), reporter or ConsoleReporter()
    directory = settings.cache_dir / "images"
    with locked(directory / ".build-lock", lambda: _say_waiting(reporter)):
        return {image.name: _ensure(image, directory, settings, reporter) for image in (OPERATOR, EMBEDDER)}


def build_operator_image(settings: Settings, reporter: Reporter) -> None:
    """Build the operator's image unless it is cached; unlike the embedder's, it does not need llama.cpp."""
    directory = settings.cache_dir / "images"
    with locked(directory / ".build-lock", lambda: _say_waiting(reporter)):
        _ensure(OPERATOR, directory, settings, reporter)


def build_former_images(
    sources: Path, version: str, *, settings: Settings | None = None, reporter: Reporter | None = None
) -> dict[str, Path]:
    """Build the images of a former version from its sources unless they are cached; return each archive's path by name.

    The operator's image comes first.
    """
    settings, reporter = settings or Settings(), reporter or ConsoleReporter()
    directory = settings.cache_dir / "images"
    former = [
        replace(image, key=f"former-{image.key}", name=f"{image.name.rpartition(':')[0]}:{version}")
        for image in (OPERATOR, EMBEDDER)
    ]
    with locked(directory / ".build-lock", lambda: _say_waiting(reporter)):
        return {image.name: _ensure(image, directory, settings, reporter, sources) for image in former}


def load_images(
    cluster: Cluster, *, settings: Settings | None = None, reporter: Reporter | None = None
) -> ProjectImages:
    """Build this project's images unless they are cached, and import them into a cluster."""
    reporter = reporter or ConsoleReporter()
    for name, archive in build_images(settings, reporter).items():
        with reporter.step(f"Load image {name}"):
            cluster.load(archive)
    return ProjectImages(OPERATOR.name, EMBEDDER.name)


def contexts_of(image: ProjectImage, settings: Settings) -> dict[str, Path]:
    """Return the build contexts that exist: the wheel of llama-cpp-python and the converted model.

    Each build context saves a step of the build. Only the embedder's image has build contexts.
    """
    if image.dockerfile != EMBEDDER.dockerfile:
        return {}
    candidates = {"wheelhouse": wheel_path(settings), "models": settings.cache_dir / "models" / _MODEL}
    return {name: path.parent for name, path in candidates.items() if path is not None and path.exists()}


def key_of(image: ProjectImage, *, base: str, contexts: Mapping[str, Path], sources: Path = REPOSITORY) -> str:
    """Compute the digest of everything that an image depends on."""
    return digest_of_files(sources, image.inputs, {"base": base, **arguments_of(contexts)})


def arguments_of(contexts: Mapping[str, Path]) -> dict[str, str]:
    """Return build arguments with the digests of the build contexts.

    A changed digest makes buildah build anew, because buildah itself does not notice a changed context.
    """
    return {f"{name.upper()}_DIGEST": _digest_of_directory(path) for name, path in contexts.items()}


def _digest_of_directory(path: Path) -> str:
    whole = hashlib.sha256()
    for file in sorted(entry for entry in path.iterdir() if entry.is_file()):
        with file.open("rb") as content:
            whole.update(file.name.encode() + hashlib.file_digest(content, "sha256").digest())
    return whole.hexdigest()


def _ensure(
    image: ProjectImage, directory: Path, settings: Settings, reporter: Reporter, sources: Path = REPOSITORY
) -> Path:
    contexts = contexts_of(image, settings)
    builder = choose_builder(settings)
    base = _base_name(builder, settings)
    archive = directory / f"{image.key}-{key_of(image, base=base, contexts=contexts, sources=sources)}.tar"
    if archive.exists():
        return archive
    if base == versions.PYTHON_IMAGE:
        _provide_base(builder, settings, reporter)
    arguments = {"BASE_IMAGE": base, **arguments_of(contexts)}
    build = Build(image.name, image.dockerfile, image.target, arguments, contexts, sources)
    with reporter.step(f"Build image {image.name} with {builder.name}") as step:
        builder.build(build, archive, step)
        step.note("")
    _remove_oldest(directory, image)
    return archive


def _remove_oldest(directory: Path, image: ProjectImage) -> None:
    """Remove all archives of an image but the newest four.

    More than one is kept, because another process may be about to load an older one.
    """
    archives = sorted(directory.glob(f"{image.key}-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in archives[_KEPT_ARCHIVES:]:
        old.unlink(missing_ok=True)


def _base_name(builder: Builder, settings: Settings) -> str:
    """Return the base image: the configured one, else the public one if it can be pulled, else the one made here."""
    if settings.base_image:
        return settings.base_image
    if builder.can_pull and builder.has_image(versions.PUBLIC_PYTHON_IMAGE):
        return versions.PUBLIC_PYTHON_IMAGE
    return versions.PYTHON_IMAGE


def _provide_base(builder: Builder, settings: Settings, reporter: Reporter) -> None:
    archive = BaseImages(settings, Binaries(settings)).ensure(["python"], reporter)["python"]
    if not builder.has_image(versions.PYTHON_IMAGE):
        builder.import_archive(archive)


def _say_waiting(reporter: Reporter) -> None:
    reporter.say("Another session is building the images; waiting.")
