"""Builds a Dockerfile into an image archive with docker, podman or buildah, behind one interface.

The command lines are made by pure functions. buildah keeps its storage below our cache directory, so that it neither
needs nor touches the machine's own storage.
"""

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devcluster import processes
from devcluster.building.binaries import go_architecture
from devcluster.errors import CommandError, DevclusterError
from devcluster.preflight import ENGINES, engine_answers, search_path
from devcluster.progress import Step
from devcluster.settings import REPOSITORY, Settings

_CERTIFICATES = Path("/etc/ssl/certs")


@dataclass(frozen=True)
class Build:
    """The parameters of one image build.

    `architecture` is another one than this machine's (`amd64`, `arm64`), or empty. Without `cached`, every step runs,
    even if the builder has the layers of the same step from before.
    """

    name: str
    dockerfile: str
    target: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    contexts: Mapping[str, Path] = field(default_factory=dict)
    architecture: str = ""
    cached: bool = True


class Builder(ABC):
    """The interface of a program that builds images."""

    name: str
    can_pull: bool

    @abstractmethod
    def build(self, build: Build, target: Path, step: Step) -> None:
        """Build an image and write it to the archive `target`."""

    @abstractmethod
    def has_image(self, name: str) -> bool:
        """Return whether an image is in the builder's storage or can be pulled into it."""

    @abstractmethod
    def digest(self, name: str) -> str:
        """Return the digest (`sha256:...`) by which an image in the storage was pulled, or an empty string."""

    @abstractmethod
    def import_archive(self, archive: Path) -> None:
        """Import the image of an archive into the builder's storage."""


class Buildah(Builder):
    """The builder buildah, with chroot isolation, which needs neither user namespaces nor a daemon."""

    name = "buildah"
    can_pull = False

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._environment = {"TMPDIR": str(directory / "tmp"), "PATH": search_path()}

    def build(self, build: Build, target: Path, step: Step) -> None:
        """Build an image with cached layers and write it to the archive `target`."""
        (self._directory / "tmp").mkdir(parents=True, exist_ok=True)
        certificates = _CERTIFICATES if _CERTIFICATES.is_dir() else None
        processes.stream(
            [*self._program(), *buildah_arguments(build, certificates)],
            step.note,
            env=self._environment,
            cwd=REPOSITORY,
        )
        step.note("writing the archive")
        _replace(
            target, lambda partial: self._run("push", "--quiet", build.name, f"docker-archive:{partial}:{build.name}")
        )

    def has_image(self, name: str) -> bool:
        """Return whether the image is in our buildah storage; nothing is pulled."""
        try:
            self._run("inspect", "--type", "image", name)
        except CommandError:
            return False
        return True

    def digest(self, name: str) -> str:
        """Return the digest of the image's manifest in our buildah storage."""
        return self._run("inspect", "--type", "image", "--format", "{{.FromImageDigest}}", name).strip()

    def import_archive(self, archive: Path) -> None:
        """Import the image of an archive into our buildah storage."""
        (self._directory / "tmp").mkdir(parents=True, exist_ok=True)
        self._run("pull", "--quiet", f"docker-archive:{archive}")

    def _program(self) -> list[str]:
        return ["buildah", "--root", str(self._directory / "storage"), "--runroot", str(self._directory / "run")]

    def _run(self, *arguments: str) -> str:
        return processes.run([*self._program(), *arguments], env=self._environment)


class Engine(Builder):
    """The builder docker or podman; `name` says which of the two."""

    can_pull = True

    def __init__(self, name: str) -> None:
        self.name = name

    def build(self, build: Build, target: Path, step: Step) -> None:
        """Build an image and write it to the archive `target`."""
        processes.stream(
            [self.name, *engine_arguments(self.name, build)], step.note, env={"DOCKER_BUILDKIT": "1"}, cwd=REPOSITORY
        )
        step.note("writing the archive")
        _replace(target, lambda partial: processes.run([self.name, "save", "--output", str(partial), build.name]))

    def has_image(self, name: str) -> bool:
        """Return whether the image is in the engine's storage or can be pulled into it."""
        for command in (["image", "inspect", name], ["pull", "--quiet", name]):
            try:
                processes.run([self.name, *command], timeout=300)
            except DevclusterError:
                continue
            return True
        return False

    def digest(self, name: str) -> str:
        """Return the first digest by which the engine's storage knows the image."""
        known = processes.run([self.name, "image", "inspect", "--format", "{{json .RepoDigests}}", name])
        return next((entry.partition("@")[2] for entry in json.loads(known) or ()), "")

    def import_archive(self, archive: Path) -> None:
        """Import the image of an archive into the engine's storage."""
        processes.run([self.name, "load", "--input", str(archive)])


def buildah_arguments(build: Build, certificates: Path | None) -> list[str]:
    """Return the arguments of buildah for a build.

    The build also trusts the certificate authorities in the directory `certificates`, if the machine has one.
    """
    volume = [f"--volume={certificates}:{certificates}:ro"] if certificates is not None else []
    return [
        "build",
        "--isolation=chroot",
        "--network=host",
        "--layers",
        "--pull-never",
        # Times of files say nothing here, and would make equal layers differ.
        "--timestamp=0",
        *volume,
        *_common_arguments(build),
    ]


def engine_arguments(engine: str, build: Build) -> list[str]:
    """Return the arguments of docker or podman."""
    return ["build", *(["--network=host", "--progress=plain"] if engine == "docker" else []), *_common_arguments(build)]


def _common_arguments(build: Build) -> list[str]:
    return [
        f"--file={build.dockerfile}",
        f"--tag={build.name}",
        *_platform_arguments(build.architecture),
        *([] if build.cached else ["--no-cache"]),
        *([f"--target={build.target}"] if build.target else []),
        *(f"--build-arg={name}={value}" for name, value in build.arguments.items()),
        *(f"--build-context={name}={path}" for name, path in build.contexts.items()),
        ".",
    ]


def _platform_arguments(architecture: str) -> list[str]:
    """Return the arguments for an architecture other than this machine's, or none if it is empty.

    buildah 1.28 and the podman of its time do not know by themselves what platform they build on.
    """
    if not architecture:
        return []
    return [f"--platform=linux/{architecture}", f"--build-arg=BUILDPLATFORM=linux/{go_architecture()}"]


def choose_builder(settings: Settings) -> Builder:
    """Return the first builder that works on this machine: docker, podman, then buildah."""
    for name in filter(engine_answers, ENGINES):
        return Engine(name)
    if os.geteuid() == 0 and shutil.which("buildah", path=search_path()):
        return Buildah(settings.cache_dir / "buildah")
    raise DevclusterError(
        "no image builder works here", remedy="start Docker or Podman, or as root: apt-get install --yes buildah"
    )


def _replace(target: Path, write: Callable[[Path], object]) -> None:
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    write(partial)
    partial.rename(target)
