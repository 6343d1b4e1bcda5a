"""Checks what each driver needs of the machine, and names the command that installs what is missing.

The facts about the machine are gathered in one place and judged by pure functions, so that tests can try every case on
any machine.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from devcluster import processes
from devcluster.errors import DevclusterError
from devcluster.node.configs import CNI_PLUGIN_DIRECTORIES

# Program and the Debian package that brings it.
NODE_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "mount": "mount",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}
BUILD_PROGRAMS = {"debootstrap": "debootstrap"}
TEST_PROGRAMS = {
    "pgbouncer": "pgbouncer",  # a real pooler for the tests of what happens behind one
    "chromium": "chromium",  # a real browser for the test of the page on which answers are judged
    "chromedriver": "chromium-driver",  # drives it
}
# Of a release, and of the tests of its images, on a machine of another architecture than an image's.
RELEASE_PROGRAMS = {
    "qemu-aarch64-static": "qemu-user-static",
    "update-binfmts": "binfmt-support",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
}
# Of `make e2e-world`, beside those of a release.
WORLD_PROGRAMS = {
    "ipset": "ipset",  # with iptables, what kube-router enforces policies by
    "iptables": "iptables",
    "redis-server": "redis-server",  # where Argo CD keeps what it has read
}
ENGINES = ("docker", "podman")
IMAGE_BUILDERS = (*ENGINES, "buildah")
_NAMESPACES_TRIAL = ("unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--mount-proc", "true")


@dataclass(frozen=True)
class Problem:
    """A missing requirement and its remedy; `packages` are the Debian packages to install, if any."""

    what: str
    remedy: str
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What is present on this machine."""

    linux: bool = True
    root: bool = True
    namespaces: bool = True
    cgroups: bool = True
    bridge_plugin: bool = True
    go: bool = True
    binaries_built: bool = False
    bases_built: bool = False
    programs: frozenset[str] = field(default_factory=frozenset)
    engines: frozenset[str] = field(default_factory=frozenset)


def gather(*, binaries_built: bool, bases_built: bool) -> Facts:
    """Find out what is present on this machine."""
    names = {*NODE_PROGRAMS, *BUILD_PROGRAMS, *TEST_PROGRAMS, *RELEASE_PROGRAMS, *WORLD_PROGRAMS, *IMAGE_BUILDERS}
    names |= {"kind", "kubectl", "helm", "go"}
    programs = frozenset(name for name in names if shutil.which(name, path=search_path()))
    root = os.geteuid() == 0 if hasattr(os, "geteuid") else False
    return Facts(
        linux=sys.platform == "linux",
        root=root,
        namespaces=root and "unshare" in programs and _namespaces_work(),
        cgroups=Path("/sys/fs/cgroup").is_mount() and os.access("/sys/fs/cgroup", os.W_OK),
        bridge_plugin=any(Path(directory, "bridge").exists() for directory in CNI_PLUGIN_DIRECTORIES),
        go="go" in programs,
        binaries_built=binaries_built,
        bases_built=bases_built,
        programs=programs,
        engines=frozenset(filter(engine_answers, ENGINES)),
    )


def engine_answers(name: str) -> bool:
    """Return whether Docker or Podman works here; some machines have the client program without a daemon."""
    if not processes.exists(name):
        return False
    try:
        return subprocess.run([name, "info"], capture_output=True, check=False, timeout=20).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def search_path() -> str:
    """Return PATH extended by the directories of administrative programs, because a user's PATH often lacks them."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def node_problems(facts: Facts) -> tuple[Problem, ...]:
    """Return what prevents the `node` driver from running."""
    if not facts.linux:
        return (Problem("this machine does not run Linux", "use the kind driver with Docker or Podman"),)
    problems: list[Problem] = []
    if not facts.root:
        problems.append(Problem("root is needed for namespaces and containers", "run the command with sudo"))
    elif not facts.namespaces and "unshare" in facts.programs:
        problems.append(
            Problem("new namespaces cannot be made here", "run outside of the sandbox, or in a privileged container")
        )
    if not facts.cgroups:
        problems.append(
            Problem("/sys/fs/cgroup is not a writable mount", "mount the control groups, or use a privileged container")
        )
    problems.extend(_missing_programs(NODE_PROGRAMS, facts))
    if not facts.bridge_plugin:
        problems.append(_missing("the CNI plugin `bridge`", "containernetworking-plugins"))
    if not facts.binaries_built and not facts.go:
        problems.append(
            Problem(
                "Go is not installed and the cluster's programs are not built",
                "install Go 1.24 or newer: https://go.dev/dl",
            )
        )
    if not facts.bases_built:
        problems.extend(_missing_programs(BUILD_PROGRAMS, facts))
    return tuple(problems)


def build_problems(facts: Facts) -> tuple[Problem, ...]:
    """Return what prevents the project's images from being built."""
    if facts.engines or "buildah" in facts.programs:
        return ()
    return (_missing("neither Docker nor Podman answers, and buildah", "buildah"),)


def problems_of_tests(facts: Facts) -> tuple[Problem, ...]:
    """Return what this machine lacks to run the tests, apart from a cluster."""
    return tuple(_missing_programs(TEST_PROGRAMS, facts))


def problems_of_releases(facts: Facts) -> tuple[Problem, ...]:
    """Return what this machine lacks to build images for arm64, apart from what it needs for its own."""
    return tuple(_missing_programs(RELEASE_PROGRAMS, facts))


def problems_of_world(facts: Facts) -> tuple[Problem, ...]:
    """Return what this machine lacks to meet other systems, apart from what a release needs."""
    return tuple(_missing_programs(WORLD_PROGRAMS, facts))


def packages_of(problems: Iterable[Problem]) -> tuple[str, ...]:
    """Return the Debian packages that solve these problems; some problems have no package."""
    return tuple(sorted({package for problem in problems for package in problem.packages}))


def install_command(packages: Iterable[str]) -> list[str]:
    """Return the apt-get command that installs these packages."""
    return ["apt-get", "install", "--yes", "--no-install-recommends", *packages]


def install(problems: Iterable[Problem]) -> None:
    """Install the packages that solve these problems, with apt-get."""
    packages = packages_of(problems)
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise DevclusterError("packages can be installed by apt only", remedy=f"install {' '.join(packages)} by hand")
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    processes.run(["apt-get", "update"], env=environment)
    processes.run(install_command(packages), env=environment)


def check(problems: tuple[Problem, ...], purpose: str) -> None:
    """Raise an error that names all problems and their remedies; without problems do nothing."""
    if not problems:
        return
    packages = packages_of(problems)
    remedies = [f"{' '.join(install_command(packages))}"] if packages else []
    remedies += [problem.remedy for problem in problems if not problem.packages]
    listing = "\n".join(f"  - {problem.what}" for problem in problems)
    raise DevclusterError(f"{purpose} cannot run on this machine:", detail=listing, remedy="; ".join(remedies))


def _missing_programs(programs: dict[str, str], facts: Facts) -> list[Problem]:
    return [_missing(f"`{name}`", package) for name, package in programs.items() if name not in facts.programs]


def _missing(what: str, package: str) -> Problem:
    return Problem(f"{what} is not installed", " ".join(install_command([package])), (package,))


def _namespaces_work() -> bool:
    return subprocess.run(_NAMESPACES_TRIAL, capture_output=True, check=False).returncode == 0


def client_problems(kubectl: bool, helm: bool) -> tuple[Problem, ...]:
    """Return one problem for each of kubectl and helm that is missing: not built by devcluster, and not in PATH."""
    missing = [name for name, there in (("kubectl", kubectl), ("helm", helm)) if not there]
    return tuple(
        Problem(f"{name} is not installed", f"install {name}, or run `python -m devcluster binaries`")
        for name in missing
    )


def kind_problems(*, has_kind: bool, engine_answers: bool, clients: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return what prevents the `kind` driver from running."""
    problems: list[Problem] = []
    if not has_kind:
        problems.append(Problem("`kind` is not installed", "install kind: https://kind.sigs.k8s.io"))
    if not engine_answers:
        problems.append(Problem("neither Docker nor Podman answers", "start Docker or Podman"))
    return (*problems, *clients)
