"""Builds this project's images from its two Dockerfiles, and caches them by the digest of everything they depend on."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster.building import versions
from devcluster.building.binaries import Binaries, go_architecture
from devcluster.building.cuda_wheel import build_cuda_wheel, cuda_wheel_path
from devcluster.building.digests import KEY_LENGTH, digest_of_files, sha256_of
from devcluster.building.wheel import build_arm64_wheel, build_llama_wheel, own_wheel_path, wheel_path
from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError
from devcluster.images.bases import BaseImages
from devcluster.images.builders import Build, Builder, choose_builder
from devcluster.images.emulation import ensure_emulation
from devcluster.locks import locked
from devcluster.progress import ConsoleReporter, Reporter
from devcluster.settings import REPOSITORY, Settings

_KEPT_ARCHIVES = 4
_PINNED = re.compile("@sha256:[0-9a-f]{64}$")
_EMBEDDER_INPUTS = (
    "Dockerfile.embedder",
    ".dockerignore",
    "requirements/build.txt",
    "requirements/embedder.txt",
    "requirements/llama.txt",
    "requirements/llama-build.txt",
    "requirements/model.txt",
    "embedder-service",
)
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
EMBEDDER = ProjectImage("embedder", "localhost/memory-embedder:dev", "Dockerfile.embedder", "cpu", _EMBEDDER_INPUTS)
CUDA_EMBEDDER = ProjectImage(
    "cuda-embedder",
    "localhost/memory-embedder:dev-cuda",
    "Dockerfile.embedder",
    "cuda",
    (*_EMBEDDER_INPUTS, "requirements/cuda.txt", "requirements/cuda-build.txt"),
)


@dataclass(frozen=True)
class Base:
    """The base image of another image: its name, and its digest as `sha256:...`, or empty if it is not known."""

    name: str
    digest: str = ""


def build_images(
    settings: Settings | None = None, reporter: Reporter | None = None, *, this_machine: bool = False
) -> dict[str, Path]:
    """Build this project's images unless they are cached, and return the path of each archive by image name.

    With `this_machine`, the embedder's image may hold a wheel of llama.cpp for this machine's processor alone; such an
    image has another name in the cache, since the digest of the wheel is a part of it.
    """
    settings, reporter = settings or Settings(), reporter or ConsoleReporter()
    with _directory(settings, reporter) as directory:
        return {
            OPERATOR.name: _ensure(OPERATOR, directory, settings, reporter),
            EMBEDDER.name: _ensure(EMBEDDER, directory, settings, reporter, this_machine=this_machine),
        }


def build_cuda_image(settings: Settings, reporter: Reporter) -> Path:
    """Build the embedder's image for GPUs unless it is cached, and return the path of its archive.

    The wheel comes first, outside the image build, because compiling it takes long and can then be interrupted.
    """
    build_cuda_wheel(settings, reporter)
    with _directory(settings, reporter) as directory:
        return _ensure(CUDA_EMBEDDER, directory, settings, reporter)


def build_for(
    image: ProjectImage,
    architecture: str,
    settings: Settings,
    reporter: Reporter,
    *,
    target: Path | None = None,
) -> Path:
    """Build an image for an architecture (`amd64`, `arm64`) unless it is cached, and return the path of its archive.

    With `target`, every step runs again whatever is cached, and the archive is written there.
    """
    wheel = None
    if image is EMBEDDER:
        build_wheel = build_arm64_wheel if architecture == "arm64" else build_llama_wheel
        wheel = build_wheel(settings, reporter)
    elif image is CUDA_EMBEDDER:
        wheel = build_cuda_wheel(settings, reporter)
    foreign = "" if architecture == go_architecture() else f"-{architecture}"
    with _directory(settings, reporter, foreign) as directory:
        return _ensure(
            image, directory, settings, reporter, architecture=architecture, wheel=wheel, uncached_target=target
        )


def build_operator_image(settings: Settings, reporter: Reporter) -> None:
    """Build the operator's image unless it is cached; unlike the embedder's, it does not need llama.cpp."""
    with _directory(settings, reporter) as directory:
        _ensure(OPERATOR, directory, settings, reporter)


def load_images(
    cluster: Cluster,
    *,
    settings: Settings | None = None,
    reporter: Reporter | None = None,
    this_machine: bool = False,
) -> ProjectImages:
    """Build this project's images unless they are cached, and import them into a cluster.

    With `this_machine`, the cluster runs on this machine, so that the images need not serve on others.
    """
    reporter = reporter or ConsoleReporter()
    for name, archive in build_images(settings, reporter, this_machine=this_machine).items():
        with reporter.step(f"Load image {name}"):
            cluster.load(archive)
    return ProjectImages(OPERATOR.name, EMBEDDER.name)


def given_files(image: ProjectImage, settings: Settings, *, this_machine: bool = False) -> dict[str, Path]:
    """Return existing files that make a step of the image build unnecessary, by the name of their build context.

    They are the wheel of llama-cpp-python and the converted model; only the embedder's images use them. The wheel may
    be one for this machine's processor alone with `this_machine`.
    """
    if image.dockerfile != EMBEDDER.dockerfile:
        return {}
    find_wheel = own_wheel_path if this_machine else wheel_path
    wheel = cuda_wheel_path(settings) if image.target == CUDA_EMBEDDER.target else find_wheel(settings)
    candidates = {"wheelhouse": wheel, "models": settings.cache_dir / "models" / _MODEL}
    return {name: path for name, path in candidates.items() if path is not None and path.exists()}


def key_of(image: ProjectImage, *, base: str, given: Mapping[str, Path]) -> str:
    """Compute the digest of everything that an image depends on; `base` is the name of the base for this machine."""
    return digest_of_files(REPOSITORY, image.inputs, {"base": base, **digests_of(given)})


def digests_of(given: Mapping[str, Path]) -> dict[str, str]:
    """Return the build arguments with the sha256 of each given file, which the Dockerfile compares with the file.

    A changed digest also makes buildah build anew, because buildah itself does not notice a changed context.
    """
    return {f"{name.upper()}_DIGEST": sha256_of(path) for name, path in given.items()}


def arguments_of(base: Base, build_image: str, given: Mapping[str, Path]) -> dict[str, str]:
    """Return all build arguments of an image; `build_image` is the name of the same base for this machine."""
    return {
        "BASE_IMAGE": base.name,
        "BUILD_IMAGE": build_image,
        "BASE_NAME": base.name,
        "BASE_DIGEST": base.digest,
        **digests_of(given),
    }


def base_named(name: str, digest: str = "") -> Base:
    """Return the base image of this name. A digest in the name (`@sha256:...`) takes precedence over `digest`."""
    return Base(name, name.partition("@")[2] or digest)


def _ensure(
    image: ProjectImage,
    directory: Path,
    settings: Settings,
    reporter: Reporter,
    *,
    this_machine: bool = False,
    architecture: str = "",
    wheel: Path | None = None,
    uncached_target: Path | None = None,
) -> Path:
    """Return the archive of an image, which is built unless it is cached, or always if there is an `uncached_target`.

    `architecture` is empty for this machine's. The embedder's `wheel` is chosen here unless it is given.
    """
    given = given_files(image, settings, this_machine=this_machine)
    if wheel is not None:
        given["wheelhouse"] = wheel
    foreign = architecture if architecture != go_architecture() else ""
    builder = choose_builder(settings)
    name = base_name(builder, settings)
    key = f"{image.key}-{foreign}" if foreign else image.key
    archive = uncached_target or directory / f"{key}-{key_of(image, base=name, given=given)}.tar"
    if archive.exists() and uncached_target is None:
        return archive
    if foreign:
        ensure_emulation(foreign)
    base = provide_base(name, builder, settings, reporter, foreign)
    contexts = {name: path.parent for name, path in given.items()}
    build = Build(
        f"{image.name}-{foreign}" if foreign else image.name,
        image.dockerfile,
        image.target,
        arguments_of(base, name, given),
        contexts,
        architecture=foreign,
        cached=uncached_target is None,
    )
    directory.mkdir(parents=True, exist_ok=True)
    with reporter.step(f"Build image {build.name} with {builder.name}") as step:
        builder.build(build, archive, step)
        step.note("")
    _remove_oldest(directory, key)
    return archive


def _remove_oldest(directory: Path, key: str) -> None:
    """Remove all archives of an image for one architecture but the newest four.

    Several are kept, because another process may be about to load an older archive.
    """
    archives = sorted(
        directory.glob(f"{key}-{'[0-9a-f]' * KEY_LENGTH}.tar"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    for old in archives[_KEPT_ARCHIVES:]:
        old.unlink(missing_ok=True)


def base_name(builder: Builder, settings: Settings) -> str:
    """Return the base image: the configured one, else the public one if it can be pulled, else devcluster's own."""
    if settings.base_image:
        return settings.base_image
    if builder.can_pull and builder.has_image(versions.PUBLIC_PYTHON_IMAGE):
        return versions.PUBLIC_PYTHON_IMAGE
    return versions.PYTHON_IMAGE


def require_pinned_base(settings: Settings) -> None:
    """Refuse to build on a base image whose name leads to another image tomorrow: one by its tag alone.

    The base that devcluster makes itself is named by no digest, but its archive is kept and recorded by one.

    Raises:
        DevclusterError: the images would stand on a base without a digest in its name.
    """
    name = base_name(choose_builder(settings), settings)
    if name != versions.PYTHON_IMAGE and not _PINNED.search(name):
        raise DevclusterError(
            f"the base image {name} is named by its tag alone, which leads to another image tomorrow",
            remedy=f'name it by digest: DEVCLUSTER_BASE_IMAGE="{versions.PUBLIC_PYTHON_IMAGE}@sha256:..."',
        )


def provide_base(name: str, builder: Builder, settings: Settings, reporter: Reporter, foreign: str = "") -> Base:
    """Put the base image into the builder's storage, and return it with its digest.

    A base image made by devcluster is imported each time, so that its name refers to the returned digest. `foreign` is
    an architecture other than this machine's, or empty. An image for it is built on two bases, its own and this
    machine's, which is imported under `name`; a pulled image has to be one for several architectures then.

    Raises:
        DevclusterError: the builder neither has the image nor can pull it.
    """
    if name != versions.PYTHON_IMAGE:
        if not builder.has_image(name):
            raise DevclusterError(
                f"{builder.name} has no base image {name} and cannot pull it",
                remedy="check DEVCLUSTER_BASE_IMAGE, or unset it",
            )
        return base_named(name, builder.digest(name))
    bases = BaseImages(settings, Binaries(settings))
    archives = dict(bases.ensure_python(one, reporter) for one in (go_architecture(), foreign) if one)
    for archive in archives.values():
        builder.import_archive(archive)
    made = list(archives)[-1]
    return Base(made, f"sha256:{sha256_of(archives[made])}")


@contextmanager
def _directory(settings: Settings, reporter: Reporter, suffix: str = "") -> Iterator[Path]:
    """Lock the directory of the images' archives until the block ends, and pass its path to the block.

    Images for another architecture have a lock of their own (`suffix`), since emulation takes many minutes.
    """
    directory = settings.cache_dir / "images"
    with locked(
        directory / f".build-lock{suffix}", lambda: reporter.say("Another session is building the images; waiting.")
    ):
        yield directory
