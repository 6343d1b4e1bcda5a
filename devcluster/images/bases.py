"""Makes base images from Debian's packages and the programs built by devcluster, for machines that can pull no image.

Each archive is named by the digest of its recipe. Packages come from the Debian mirror that this machine's apt uses.
"""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from devcluster import processes
from devcluster.building import versions
from devcluster.building.binaries import Binaries, go_architecture
from devcluster.building.digests import digest_of
from devcluster.errors import DevclusterError
from devcluster.images.archives import ImageConfig, write_archive
from devcluster.images.emulation import ensure_emulation
from devcluster.locks import locked
from devcluster.progress import Reporter
from devcluster.settings import Settings

_MIRROR_REMEDY = "set DEVCLUSTER_DEBIAN_MIRROR to a Debian mirror"
_UNNEEDED = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/cache/debconf",
    "var/log",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_POSTGRES_PATH = f"/usr/lib/postgresql/18/bin:{_PATH}"
# The user id that CloudNativePG runs Postgres as.
_POSTGRES_UID = 26


@dataclass(frozen=True)
class BaseImage:
    """A base image of one layer.

    `fill` writes the layer's files into a directory. `recipe` is a text that changes whenever the layer would change.
    """

    key: str
    name: str
    config: ImageConfig
    recipe: str
    fill: Callable[[Path], None]


class BaseImages:
    """A cache of base image archives; missing ones are made."""

    def __init__(self, settings: Settings, binaries: Binaries) -> None:
        self._directory = settings.cache_dir / "images"
        self._binaries = binaries
        self._settings = settings

    def ensure_python(self, architecture: str, reporter: Reporter) -> tuple[str, Path]:
        """Make the archive of the Python image for an architecture if it is missing; return the image's name and path.

        For another architecture than this machine's, Debian's packages are unpacked and configured under emulation.
        """
        if architecture == go_architecture():
            return versions.PYTHON_IMAGE, self.ensure(["python"], reporter)["python"]
        image = self._python(architecture)
        path = self._path(image)
        with locked(self._directory / ".lock", lambda: reporter.say("Another session is making base images; waiting.")):
            if not path.exists():
                ensure_emulation(architecture)
                with reporter.step(step_title(image.name)):
                    self._make(image, path)
        return image.name, path

    def missing(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the names of those of these images whose archives do not exist."""
        wanted = set(keys)
        return tuple(image.name for image in self._all() if image.key in wanted and not self._path(image).exists())

    def ensure(self, keys: Iterable[str], reporter: Reporter) -> dict[str, Path]:
        """Make the missing archives of these images, and return the path of every archive by the image's key."""
        images = {image.key: image for image in self._all() if image.key in set(keys)}
        paths = {key: self._path(image) for key, image in images.items()}
        if all(path.exists() for path in paths.values()):
            return paths
        with locked(self._directory / ".lock", lambda: reporter.say("Another session is making base images; waiting.")):
            for key, image in images.items():
                if not paths[key].exists():
                    with reporter.step(step_title(image.name)):
                        self._make(image, paths[key])
        return paths

    def _path(self, image: BaseImage) -> Path:
        return self._directory / f"{image.key}-{digest_of({'recipe': image.recipe, 'config': repr(image.config)})}.tar"

    def _make(self, image: BaseImage, target: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="devcluster-image-", dir=self._directory) as scratch:
            root = Path(scratch, "root")
            root.mkdir(mode=0o755)
            image.fill(root)
            layer = Path(scratch, "layer.tar")
            # One time stamp and one order, so that the same files give the same layer.
            command = [
                "tar",
                "--create",
                f"--file={layer}",
                f"--directory={root}",
                "--sort=name",
                "--numeric-owner",
                "--mtime=@0",
                ".",
            ]
            processes.run(command)
            write_archive(target, image.name, layer, image.config)

    def _all(self) -> tuple[BaseImage, ...]:
        manager = self._binaries.directory("cnpg").name
        architecture = go_architecture()
        return (
            BaseImage(
                "pause",
                versions.PAUSE_IMAGE,
                ImageConfig(("/pause",), architecture=architecture),
                self._binaries.directory("pause").name,
                lambda root: _copy(self._binaries.path("pause"), root / "pause"),
            ),
            BaseImage(
                "cnpg",
                cnpg_image(),
                ImageConfig(("/manager",), "65532:65532", architecture=architecture),
                manager,
                self._fill_cnpg,
            ),
            BaseImage(
                "postgresql",
                versions.POSTGRES_IMAGE,
                ImageConfig((), str(_POSTGRES_UID), {"PATH": _POSTGRES_PATH, "LANG": "C.UTF-8"}, architecture),
                f"{versions.POSTGRES_SUITE} {versions.POSTGRES_PACKAGES} {_UNNEEDED} 1",
                self._fill_postgres,
            ),
            self._python(architecture),
        )

    def _python(self, architecture: str) -> BaseImage:
        foreign = "" if architecture == go_architecture() else f"-{architecture}"
        return BaseImage(
            f"python{foreign}",
            f"{versions.PYTHON_IMAGE}{foreign}",
            ImageConfig(("/usr/bin/python3",), "", {"PATH": _PATH, "LANG": "C.UTF-8"}, architecture),
            f"{versions.PYTHON_SUITE} {versions.PYTHON_PACKAGES} {_UNNEEDED} 1",
            lambda root: self._debootstrap(root, versions.PYTHON_SUITE, versions.PYTHON_PACKAGES, architecture),
        )

    def _fill_cnpg(self, root: Path) -> None:
        manager = self._binaries.path("cnpg-manager")
        _copy(manager, root / "manager")
        # Copied from here into the Postgres pods, by architecture. A hard link keeps the layer at half the size.
        (root / "operator").mkdir()
        (root / "operator" / f"manager_{go_architecture()}").hardlink_to(root / "manager")

    def _fill_postgres(self, root: Path) -> None:
        self._debootstrap(root, versions.POSTGRES_SUITE, versions.POSTGRES_PACKAGES)
        processes.run(["chroot", root, "usermod", "--uid", str(_POSTGRES_UID), "postgres"])
        (root / "run" / "postgresql").mkdir(parents=True, exist_ok=True)
        processes.run(["chroot", root, "chown", "-R", "postgres", "/var/lib/postgresql", "/run/postgresql"])

    def _debootstrap(self, root: Path, suite: str, packages: tuple[str, ...], architecture: str = "") -> None:
        include = ",".join(("ca-certificates", *packages))
        mirror = self._settings.debian_mirror or debian_mirror()
        # The script of the unstable suite also makes the newer ones that an older debootstrap has no name for.
        foreign = [f"--arch={architecture}"] if architecture not in {"", go_architecture()} else []
        command = ["debootstrap", "--variant=minbase", *foreign, f"--include={include}", suite, root, mirror, "sid"]
        processes.run(command, remedy=f"check that {suite} can be fetched; {_MIRROR_REMEDY} if not")
        for directory in _UNNEEDED:
            shutil.rmtree(root / directory, ignore_errors=True)
            (root / directory).mkdir()


def step_title(name: str) -> str:
    """Return the title of the step that makes an image."""
    return f"Make image {name}"


def cnpg_image() -> str:
    """Return the image name that CloudNativePG's release manifest uses."""
    return f"ghcr.io/cloudnative-pg/cloudnative-pg:{versions.tool_version('cnpg').removeprefix('v')}"


def debian_mirror() -> str:
    """Return the URL of the Debian mirror that this machine's apt uses."""
    targets = processes.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages"]
    )
    return mirror_from(targets)


def mirror_from(targets: str) -> str:
    """Return the URL of Debian's main archive from the output of `apt-get indextargets`."""
    found = re.search(r"^Debian\|Debian\|(\S+?)/?$", targets, flags=re.MULTILINE)
    if found is None:
        raise DevclusterError("apt has no Debian mirror configured", remedy=_MIRROR_REMEDY)
    return found.group(1)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o755)
