"""A running cluster as its users see it: kubectl, helm, images, and commands inside its network.

The abstract methods differ between drivers. All other methods go through the Kubernetes API server.
"""

import json
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from devcluster import processes
from devcluster.errors import UnsupportedError
from devcluster.settings import DriverName

Manifest = Mapping[str, Any]


class Cluster(AbstractContextManager["Cluster"], ABC):
    """A handle of a running cluster; used as a context manager it calls `close` at the end of the block."""

    driver: DriverName
    postgres_image: str
    storage_class: str | None = None

    def __init__(self, name: str, kubeconfig: Path, *, kubectl: Path | str, helm: Path | str) -> None:
        self.name = name
        self.kubeconfig = kubeconfig
        self._kubectl = str(kubectl)
        self._helm = str(helm)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the cluster if it was started for one block only; a cluster that keeps running is left alone."""

    @property
    def audit_log(self) -> Path:
        """Path of the API server's audit log, one JSON object per line."""
        raise UnsupportedError(f"the {self.driver} driver has no audit log", remedy="use the node driver")

    def kubectl(self, *args: str, input: str | None = None, timeout: float | None = None) -> str:  # noqa: A002 - as in subprocess
        """Run kubectl against this cluster and return its output."""
        return processes.run([self._kubectl, *args], stdin=input, env=self.environment, timeout=timeout)

    def kubectl_json(self, *args: str, timeout: float | None = None) -> Any:  # noqa: ANN401 - a Kubernetes object
        """Run kubectl with `-o json` and return its parsed output."""
        return json.loads(self.kubectl(*args, "-o", "json", timeout=timeout))

    def read(self, path: str) -> Any:  # noqa: ANN401 - a Kubernetes object
        """Return the object or the list of objects at a path of the API server, such as /api/v1/nodes.

        Raises:
            DevclusterError: the API server refused the request, for example because there is no such object.
        """
        return json.loads(self.kubectl("get", "--raw", path))

    def kubectl_command(self, *args: str) -> list[str]:
        """Return a command line of kubectl, for callers that run it themselves."""
        return [self._kubectl, f"--kubeconfig={self.kubeconfig}", *args]

    def apply(self, *manifests: Manifest) -> None:
        """Apply Kubernetes objects with server-side apply."""
        text = yaml.safe_dump_all([dict(manifest) for manifest in manifests], sort_keys=False)
        self.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", input=text)

    def helm(self, *args: str, timeout: float | None = None) -> str:
        """Run helm against this cluster and return its output."""
        return processes.run([self._helm, *args], env=self.environment, timeout=timeout)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make other programs use this cluster."""
        return {"KUBECONFIG": str(self.kubeconfig)}

    @abstractmethod
    def load(self, archive: Path) -> None:
        """Import all images of an image archive into the nodes."""

    def tag_image(self, name: str, other: str) -> None:
        """Give an image that the nodes have another name, as if another registry had it as well."""
        raise UnsupportedError(f"the {self.driver} driver cannot call {name} {other}", remedy="use the node driver")

    def trust_registry(self, host: str, authority: Path) -> None:
        """Have the nodes pull from a registry (`host:port`) over TLS, verified by this authority's certificate."""
        raise UnsupportedError(
            f"the {self.driver} driver cannot trust {host} by {authority}", remedy="use the node driver"
        )

    def await_image(self, name: str) -> None:
        """Wait until the nodes have the image `name`, which the driver provides: `cnpg` or `postgresql`."""

    @abstractmethod
    def exec_command(self, argv: Sequence[str]) -> list[str]:
        """Return a command line that runs `argv` inside the cluster's network, where names of Services resolve."""

    def exec_in_network(
        self,
        argv: Sequence[str],
        *,
        input: str | None = None,  # noqa: A002 - as in subprocess
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> str:
        """Run a command inside the cluster's network and return its output."""
        return processes.run(self.exec_command(argv), stdin=input, env=env, timeout=timeout)

    def popen_in_network(self, argv: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":  # noqa: ANN401 - as Popen
        """Start a command inside the cluster's network; the command ends when the returned process is ended."""
        return subprocess.Popen(self.exec_command(argv), **options)

    def nodes(self) -> list[str]:
        """Return the names of the nodes."""
        return [node["metadata"]["name"] for node in self.kubectl_json("get", "nodes")["items"]]

    def patch_extended_resource(self, name: str, quantity: int | None) -> None:
        """Offer `quantity` of an extended resource (such as `nvidia.com/gpu`) on the first node; None removes it.

        Kubernetes documents this patch for extended resources without a device plugin. The scheduler counts such a
        resource, but no pod is given a device.
        """
        value = None if quantity is None else str(quantity)
        patch = json.dumps({"status": {"capacity": {name: value}, "allocatable": {name: value}}})
        self.kubectl("patch", "node", self.nodes()[0], "--subresource=status", "--type=merge", f"--patch={patch}")

    def shell_environment(self) -> dict[str, str]:
        """Return this process's environment with the variables that make programs use this cluster."""
        return {**os.environ, **self.environment}
