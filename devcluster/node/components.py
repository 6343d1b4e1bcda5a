"""The components of a node as data: command line, required components, and readiness probe.

Flags that have their default value are left out. Only the standard library is imported, since the init process uses
this module.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from devcluster.node.layout import (
    API_PORT,
    CLUSTER_CIDR,
    CONTAINERD_SOCKET,
    FRONT_PROXY,
    INSIDE,
    NODE_ADDRESS,
    NODE_NAME,
    SERVICE_CIDR,
    Layout,
)

# Nothing but `pause` is needed for a pod to start; who needs another image waits for it.
BACKGROUND_IMAGES = ("cnpg", "postgresql")
_LAYOUT = Layout(INSIDE)
_ETCD = "http://127.0.0.1:2379"


@dataclass(frozen=True)
class Probe:
    """A readiness probe: a URL that answers 200, a Unix socket that takes a connection, or a task that exits with 0."""

    kind: Literal["http", "socket", "exit"]
    target: str = ""


@dataclass(frozen=True)
class Component:
    """A process that the init process starts once all components in `needs` are ready."""

    name: str
    argv: tuple[str, ...]
    ready: Probe
    needs: tuple[str, ...] = ()
    descriptors: tuple[int, ...] = ()
    # Work that goes on while the node counts as up already.
    background: bool = False

    @property
    def is_task(self) -> bool:
        """Whether the component is a task, which ends by itself, and not a service, which keeps running."""
        return self.ready.kind == "exit"


def components(programs: dict[str, str], images: dict[str, str], listener: int) -> tuple[Component, ...]:
    """Return all components of a node."""
    return (
        _etcd(programs["etcd"]),
        _apiserver(programs["kube-apiserver"]),
        _forwarder(programs["python"], listener),
        _containerd(programs["containerd"]),
        *_image_imports(programs["ctr"], images),
        _controller_manager(programs["kube-controller-manager"]),
        Component(
            "scheduler",
            (
                programs["kube-scheduler"],
                f"--kubeconfig={_LAYOUT.internal_kubeconfig('scheduler')}",
                "--leader-elect=false",
            ),
            Probe("http", "https://127.0.0.1:10259/healthz"),
            ("apiserver",),
        ),
        _kubelet(programs["kubelet"]),
        Component(
            "proxy",
            (programs["kube-proxy"], f"--config={_LAYOUT.config / 'proxy.yaml'}"),
            Probe("http", "http://127.0.0.1:10256/livez"),
            ("apiserver",),
        ),
        _create("addon-dns", programs["kubectl"]),
        _create("addon-storage", programs["kubectl"]),
        Component(
            "coredns",
            (programs["coredns"], "-conf", str(_LAYOUT.config / "Corefile")),
            Probe("http", f"http://{NODE_ADDRESS}:8181/ready"),
            # Its rights come first: refused watches would be retried with a growing delay.
            ("addon-dns",),
        ),
    )


def _etcd(program: str) -> Component:
    argv = (
        program,
        f"--data-dir={_LAYOUT.data / 'etcd'}",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        # The data ends with the cluster, so nothing is worth waiting for the disk.
        "--unsafe-no-fsync",
        "--log-level=warn",
    )
    return Component("etcd", argv, Probe("http", f"{_ETCD}/health"))


def _apiserver(program: str) -> Component:
    pki = _LAYOUT.pki
    argv = (
        program,
        f"--etcd-servers={_ETCD}",
        f"--secure-port={API_PORT}",
        f"--advertise-address={NODE_ADDRESS}",
        f"--tls-cert-file={pki / 'api.crt'}",
        f"--tls-private-key-file={pki / 'api.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--proxy-client-cert-file={pki / 'front-proxy.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy.key'}",
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=Node,RBAC",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--allow-privileged=true",
        f"--audit-policy-file={_LAYOUT.config / 'audit.yaml'}",
        f"--audit-log-path={_LAYOUT.audit_log}",
    )
    return Component("apiserver", argv, Probe("http", f"https://127.0.0.1:{API_PORT}/readyz"), ("etcd",))


def _forwarder(python: str, listener: int) -> Component:
    argv = (python, "-m", "devcluster.node.forwarder", str(listener), "127.0.0.1", str(API_PORT))
    # Early connections wait in the socket's queue, so there is nothing to wait for here.
    return Component(
        "forwarder", argv, Probe("http", f"https://127.0.0.1:{API_PORT}/livez"), ("apiserver",), (listener,)
    )


def _containerd(program: str) -> Component:
    argv = (program, "--config", str(_LAYOUT.config / "containerd.toml"))
    return Component("containerd", argv, Probe("socket", str(CONTAINERD_SOCKET)))


def _image_imports(ctr: str, images: dict[str, str]) -> list[Component]:
    """Return one task for each image import.

    Each task needs the task before it, because two imports at once would compete for the disk.
    """
    tasks: list[Component] = []
    for name, archive in images.items():
        needs = (tasks[-1].name,) if tasks else ("containerd",)
        argv = (ctr, "--address", str(CONTAINERD_SOCKET), "--namespace", "k8s.io", "images", "import", archive)
        tasks.append(Component(f"image-{name}", argv, Probe("exit"), needs, background=name in BACKGROUND_IMAGES))
    return tasks


def _create(name: str, kubectl: str) -> Component:
    kubeconfig, file = _LAYOUT.internal_kubeconfig("admin"), _LAYOUT.config / f"{name}.json"
    return Component(
        name, (kubectl, f"--kubeconfig={kubeconfig}", "create", f"--filename={file}"), Probe("exit"), ("apiserver",)
    )


def _controller_manager(program: str) -> Component:
    argv = (
        program,
        f"--kubeconfig={_LAYOUT.internal_kubeconfig('controller-manager')}",
        f"--service-account-private-key-file={_LAYOUT.pki / 'sa.key'}",
        f"--root-ca-file={_LAYOUT.pki / 'ca.crt'}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--allocate-node-cidrs=true",
        f"--cluster-cidr={CLUSTER_CIDR}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
    )
    return Component("controller-manager", argv, Probe("http", "https://127.0.0.1:10257/healthz"), ("apiserver",))


def _kubelet(program: str) -> Component:
    argv = (
        program,
        f"--config={_LAYOUT.config / 'kubelet.yaml'}",
        f"--kubeconfig={_LAYOUT.internal_kubeconfig('kubelet')}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={NODE_ADDRESS}",
        f"--root-dir={_LAYOUT.data / 'kubelet'}",
        f"--cert-dir={_LAYOUT.data / 'kubelet' / 'pki'}",
    )
    return Component("kubelet", argv, Probe("http", "http://127.0.0.1:10248/healthz"), ("apiserver", "containerd"))


def log_file(component: str) -> Path:
    """Return the path of a component's log inside the node's namespaces."""
    return _LAYOUT.logs / f"{component}.log"
