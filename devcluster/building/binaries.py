"""Builds the programs of a cluster from the Go modules pinned below `tools/`; CoreDNS has fewer plugins than released.

The programs of one tool are kept in one directory, which is named by the digest of go.mod, go.sum, tools.go and the
build flags. A directory appears under its final name only when it is complete. The programs are static and depend on no
machine, so machines of one architecture may share the directory.
"""

import json
import platform
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devcluster import processes
from devcluster.building.digests import digest_of_files
from devcluster.building.versions import tool_directory, tool_module, tool_version
from devcluster.errors import DevclusterError
from devcluster.locks import locked
from devcluster.progress import Reporter, Step
from devcluster.settings import Settings

# The linker would leave out the debug information that the compiler makes; not making it saves a sixth of the time.
_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly", "-gcflags=all=-dwarf=false")
_SOURCES = ("go.mod", "go.sum", "tools.go", "main.go", "coredns/main.go")
_GO_REMEDY = "install Go 1.24 or newer (https://go.dev/dl), and check that the Go module proxy can be reached"


@dataclass(frozen=True)
class Tool:
    """Programs that are built together, from a Go module below `tools/`.

    `programs` maps the name of each program to its Go package; several programs must be named as their packages. There
    may be none, where only files of the module are wanted.
    `files` maps the name of each file that is kept beside the programs to its path within the sources of the module.
    `tags` are Go's build tags, separated by commas, by which the module's authors leave parts of a program out.
    `toolchain` is the Go that builds it where the module needs a newer one than the machine has, such as go1.27.3; Go
    fetches it from the module proxy.
    """

    name: str
    programs: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    tags: str = ""
    toolchain: str = ""

    @property
    def directory(self) -> Path:
        """Directory of the module's go.mod."""
        return tool_directory(self.name)

    @property
    def ldflags(self) -> str:
        """Linker flags, which leave out debug information and set the version that each program reports."""
        return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in self.variables.items())])

    @property
    def title(self) -> str:
        """Title of the step that builds the programs."""
        return f"Build {self.name}"

    @property
    def key(self) -> str:
        """Name of the directory that holds the built programs."""
        extra = {
            "flags": " ".join(_FLAGS),
            "ldflags": self.ldflags,
            "arch": go_architecture(),
            "programs": str(self.programs),
            **({"files": str(self.files)} if self.files else {}),
            **({"tags": self.tags} if self.tags else {}),
            **({"toolchain": self.toolchain} if self.toolchain else {}),
        }
        sources = [name for name in _SOURCES if (self.directory / name).exists()]
        return f"{self.name}-{digest_of_files(self.directory, sources, extra)}"


def go_architecture(machine: str | None = None) -> str:
    """Return this machine's architecture as Go names it."""
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    machine = machine or platform.machine()
    if machine not in names:
        raise DevclusterError(f"the architecture {machine} is not supported", remedy="use an x86-64 or arm64 machine")
    return names[machine]


def tools() -> tuple[Tool, ...]:
    """List the tools that the `node` driver needs, and helm, which all drivers need."""
    kubernetes = tool_version("kubernetes")
    major, minor, _ = kubernetes.removeprefix("v").split(".", 2)
    version = "k8s.io/component-base/version"
    cnpg = tool_version("cnpg").removeprefix("v")
    commands = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
    return (
        Tool("pause", {"pause": "."}),
        Tool(
            "kubernetes",
            {name: f"k8s.io/kubernetes/cmd/{name}" for name in commands},
            {f"{version}.gitVersion": kubernetes, f"{version}.gitMajor": major, f"{version}.gitMinor": minor},
        ),
        Tool("etcd", {"etcd": tool_module("etcd")}),
        Tool("coredns", {"coredns": "./coredns"}),
        Tool(
            "helm",
            {"helm": "helm.sh/helm/v4/cmd/helm"},
            {"helm.sh/helm/v4/internal/version.version": tool_version("helm")},
        ),
        Tool(
            "cnpg",
            {"cnpg-manager": "github.com/cloudnative-pg/cloudnative-pg/cmd/manager"},
            {"github.com/cloudnative-pg/cloudnative-pg/pkg/versions.buildVersion": cnpg},
            {"cnpg.yaml": f"releases/cnpg-{cnpg}.yaml"},
        ),
    )


class Binaries:
    """A cache of programs that are built from pinned Go modules. By default these are the programs of a cluster."""

    def __init__(self, settings: Settings, group: Sequence[Tool] | None = None) -> None:
        self._root = settings.cache_dir / "bin"
        self._tools = tuple(tools() if group is None else group)

    def directory(self, tool: str) -> Path:
        """Return the directory of one tool's programs, whether they are built or not."""
        return self._root / next(entry.key for entry in self._tools if entry.name == tool)

    def path(self, program: str) -> Path:
        """Return the path of a built program."""
        for tool in self._tools:
            if program in tool.programs:
                path = self._root / tool.key / program
                if path.exists():
                    return path
        raise DevclusterError(f"{program} has not been built", remedy="run `python -m devcluster binaries`")

    def missing(self, names: Iterable[str] | None = None) -> tuple[Tool, ...]:
        """List the tools whose programs are not built yet: those in `names`, or by default all of them."""
        wanted = set(names) if names is not None else {tool.name for tool in self._tools}
        return tuple(tool for tool in self._tools if tool.name in wanted and not (self._root / tool.key).is_dir())

    def ensure(self, reporter: Reporter, names: Iterable[str] | None = None) -> None:
        """Build the missing programs; while another process builds them, wait for that process instead."""
        names = None if names is None else tuple(names)
        if not self.missing(names):
            return
        with locked(self._root / ".lock", lambda: reporter.say("Another session is building these programs; waiting.")):
            missing = self.missing(names)
            if missing and shutil.which("go") is None:
                raise DevclusterError("the cluster's programs are not built and Go is not installed", remedy=_GO_REMEDY)
            for tool in missing:
                self._build(tool, reporter)

    def _build(self, tool: Tool, reporter: Reporter) -> None:
        target = self._root / tool.key
        partial = self._root / f".{tool.key}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with reporter.step(tool.title) as step:
            if tool.programs:
                _compile(tool, partial, step)
            _copy_files(tool, partial)
        partial.rename(target)


def _compile(tool: Tool, directory: Path, step: Step) -> None:
    flags = [*_FLAGS, "-tags", tool.tags, "-ldflags", tool.ldflags]
    command = ["go", "build", *flags, "-o", _output(tool, directory), *tool.programs.values()]
    processes.stream(command, step.note, env=_environment(tool), cwd=tool.directory, remedy=_GO_REMEDY)


def _output(tool: Tool, directory: Path) -> str:
    """Return where Go writes the programs. It names several programs by their packages, and links them side by side."""
    return f"{directory}/" if len(tool.programs) > 1 else str(directory / next(iter(tool.programs)))


def _environment(tool: Tool) -> dict[str, str]:
    # The user's GOFLAGS could make the result depend on the machine; the module proxy and caches stay the user's.
    return {
        "CGO_ENABLED": "0",
        "GOFLAGS": "",
        "GOWORK": "off",
        "GOOS": "linux",
        "GOARCH": go_architecture(),
        "GOAMD64": "v1",
        **({"GOTOOLCHAIN": tool.toolchain} if tool.toolchain else {}),
    }


def _copy_files(tool: Tool, target: Path) -> None:
    if not tool.files:
        return
    command = ["go", "mod", "download", "-json", tool_module(tool.name)]
    downloaded = json.loads(processes.run(command, env=_environment(tool), cwd=tool.directory, remedy=_GO_REMEDY))
    for name, path in tool.files.items():
        shutil.copyfile(Path(downloaded["Dir"]) / path, target / name)
        (target / name).chmod(0o644)
