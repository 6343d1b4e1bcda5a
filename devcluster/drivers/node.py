"""The `node` driver, which runs a real Kubernetes node in Linux namespaces of this machine, without Docker."""

import json
import os
import shutil
import ssl
import sys
from collections.abc import Sequence
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from devcluster import kubeconfig, preflight, processes
from devcluster.building import versions
from devcluster.building.binaries import Binaries
from devcluster.cluster import Cluster
from devcluster.drivers.base import ClusterState, Driver
from devcluster.errors import DevclusterError
from devcluster.images.bases import BaseImages
from devcluster.node import addons, launch
from devcluster.node.layout import CONTAINERD_SOCKET, INSIDE, NODE_NAME, Layout
from devcluster.preflight import Problem
from devcluster.progress import Reporter
from devcluster.settings import DriverName, Settings

_TOOLS = ("pause", "kubernetes", "etcd", "coredns", "helm", "cnpg")
_IMAGES = ("pause", "cnpg", "postgresql")
_BUILT = (
    "kubectl",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "etcd",
    "coredns",
)
_INSTALLED = ("containerd", "ctr")
_READ_SECONDS = 30.0
# Of so many ended clusters the logs stay.
_KEPT_LOGS = 10
# Ends the command when the nsenter that waits for it is killed, and keeps the working directory.
_ENTER = 'cd "$1" 2>/dev/null; shift; exec setpriv --pdeathsig KILL -- "$@"'

_CTR_IMAGES = ("ctr", "--address", str(CONTAINERD_SOCKET), "--namespace", "k8s.io", "images")


class NodeCluster(Cluster):
    """A cluster on this machine, of one node, that runs without Docker in namespaces of its own."""

    driver = DriverName.NODE
    postgres_image = versions.POSTGRES_IMAGE
    storage_class = addons.STORAGE_CLASS

    def __init__(
        self, name: str, layout: Layout, binaries: Binaries, running: launch.RunningNode | None = None
    ) -> None:
        super().__init__(name, layout.kubeconfig, kubectl=binaries.path("kubectl"), helm=binaries.path("helm"))
        self.layout = layout
        self._running = running

    @property
    def audit_log(self) -> Path:
        """Path of the API server's audit log, one JSON object per line."""
        return self.layout.audit_log

    @property
    def logs(self) -> Path:
        """Directory of the logs of all components."""
        return self.layout.logs

    def read(self, path: str) -> Any:  # noqa: ANN401 - a Kubernetes object
        """Return the object or list at this path without kubectl, whose start would take a twentieth of a second."""
        connection = HTTPSConnection(self._client[0], context=self._client[1], timeout=_READ_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            found = json.loads(body) if answer.status == HTTPStatus.OK else None
        except (OSError, HTTPException, ValueError) as error:  # the last two of an answer that was cut
            raise DevclusterError(f"the API server of {self.name} cannot be reached: {error}") from error
        finally:
            connection.close()
        if answer.status != HTTPStatus.OK:
            raise DevclusterError(
                f"GET {path} failed with status {answer.status}", detail=body.decode(errors="replace")
            )
        return found

    @cached_property
    def _client(self) -> tuple[str, ssl.SSLContext]:
        return kubeconfig.client_of(self.kubeconfig)

    def load(self, archive: Path) -> None:
        """Import all images of an image archive into the node's containerd."""
        processes.run(self.exec_command([*_CTR_IMAGES, "import", str(archive.absolute())]))

    def tag_image(self, name: str, other: str) -> None:
        """Give an image that the node has another name, as if another registry had it as well."""
        processes.run(self.exec_command([*_CTR_IMAGES, "tag", "--force", name, other]))

    def trust_registry(self, host: str, authority: Path) -> None:
        """Have the node pull from a registry (`host:port`) over TLS, verified by this authority's certificate."""
        directory = self.layout.registries / host
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copy(authority, directory / "ca.crt")
        inside = Layout(INSIDE).registries / host / "ca.crt"
        # A table of its own, since containerd would otherwise speak plain HTTP to a host named localhost.
        table = f'[host."https://{host}"]\ncapabilities = ["pull", "resolve"]\nca = "{inside}"\n'
        (directory / "hosts.toml").write_text(f'server = "https://{host}"\n\n{table}', encoding="utf-8")

    def await_image(self, name: str) -> None:
        """Wait until the background import of the image `name` has ended."""
        launch.wait_until_ready(self.layout, f"image-{name}")

    def exec_command(self, argv: Sequence[str]) -> list[str]:
        """Return a command line that runs `argv` in the node's namespaces, with a KUBECONFIG that is valid there."""
        init = launch.process_ids_of(self.layout)["init"]
        inner = ["env", f"KUBECONFIG={Layout(INSIDE).internal_kubeconfig('admin')}", *argv]
        enter = ["nsenter", f"--target={init}", "--net", "--mount", "--pid", "--ipc", "--uts"]
        return [*enter, "sh", "-c", _ENTER, "sh", str(Path.cwd()), *inner]

    def close(self) -> None:
        """End the cluster if it was started for this process only."""
        if self._running is not None:
            os.close(self._running.lifeline)
            launch.end(self.name, self.layout)
            self._running.keeper.wait()
            self._running = None


class NodeDriver(Driver):
    """The driver that starts nodes in Linux namespaces, and builds the programs and images that they need."""

    name = DriverName.NODE
    title = "Linux with root, one real node in its own namespaces"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._binaries = Binaries(settings)
        self._bases = BaseImages(settings, self._binaries)

    def problems(self) -> tuple[Problem, ...]:
        """Return what this machine lacks to run a node or to build its programs and images."""
        facts = preflight.gather(
            binaries_built=not self._binaries.missing(_TOOLS), bases_built=not self._bases.missing(_IMAGES)
        )
        return preflight.node_problems(facts)

    def prepare(self, reporter: Reporter) -> None:
        """Build the missing programs and images of the node."""
        preflight.check(self.problems(), "the node driver")
        self._binaries.ensure(reporter, _TOOLS)
        self._bases.ensure(_IMAGES, reporter)

    def up(self, name: str, reporter: Reporter, *, attached: bool) -> Cluster:
        """Start a node and wait until it is Ready, so that pods can be scheduled on it."""
        self.prepare(reporter)
        images = self._bases.ensure(_IMAGES, reporter)
        launch.prune_logs(self._settings.state_dir, keep=_KEPT_LOGS)
        layout = self._layout(name)
        running = launch.launch(
            name, layout.root, programs=self._programs(), images=images, ready_seconds=self._settings.ready_seconds
        )
        cluster = NodeCluster(name, layout, self._binaries, running)
        try:
            with reporter.step(f"Start node {name}") as step:
                launch.wait_until_up(running, step)
                step.note("")
            with reporter.step("Node Ready"):
                cluster.kubectl("wait", "--for=condition=Ready", f"node/{NODE_NAME}", "--timeout=120s")
        except BaseException:
            cluster.close()
            raise
        if attached:
            return cluster
        running.detach()
        return NodeCluster(name, layout, self._binaries)

    def find(self, name: str) -> NodeCluster | None:
        """Return the running cluster of this name, or None if there is none."""
        layout = self._layout(name)
        return NodeCluster(name, layout, self._binaries) if launch.is_running(layout) else None

    def down(self, name: str) -> bool:
        """End the node of this name and remove everything but its logs; return False if there was none."""
        return launch.end(name, self._layout(name))

    def states(self) -> list[ClusterState]:
        """Return the states of all clusters that have a state directory, running or ended."""
        if not self._settings.state_dir.is_dir():
            return []
        return [self._state(Layout(root)) for root in sorted(self._settings.state_dir.iterdir()) if root.is_dir()]

    def _state(self, layout: Layout) -> ClusterState:
        running = launch.is_running(layout)
        detail = f"KUBECONFIG={layout.kubeconfig}" if running else f"logs: {layout.logs}"
        return ClusterState(layout.root.name, self.name, "running" if running else "ended", detail)

    def _layout(self, name: str) -> Layout:
        return Layout(self._settings.state_dir / name)

    def _programs(self) -> dict[str, Path]:
        programs = {name: self._binaries.path(name) for name in _BUILT}
        for name in _INSTALLED:
            found = shutil.which(name, path=preflight.search_path())
            if found is None:
                raise DevclusterError(f"{name} is not installed", remedy="run `python -m devcluster preflight`")
            programs[name] = Path(found)
        return {**programs, "python": Path(sys.executable)}
