"""kube-router enforces the NetworkPolicies: of each one a packet that it allows, and one that it stops.

Before it runs, all of these packets arrive, so that what is stopped afterwards is stopped by a policy. While it runs, a
new row gets its vector, and the index stays Ready.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from shutil import which

from devcluster.building.binaries import Binaries
from devcluster.building.kube_router import KUBE_ROUTER
from devcluster.demo import objects
from devcluster.errors import DevclusterError
from devcluster.install import OPERATOR_NAMESPACE
from devcluster.node.layout import INSIDE, NODE_NAME, SERVICE_CIDR, Layout
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import OPERATOR_PODS
from tests.support.cluster.tenants import INDEX, KEY, SECRET, Tenant
from tests.support.waiting import eventually
from tests.world.parts import World

_EMBEDDER_PORT = 8080
_OTHER_PORT, _FILES_PORT = 7777, 8443  # of a pod elsewhere: one that no policy names, and that of a model file's URL
_MODEL_FILE = {"url": f"https://models.example.com:{_FILES_PORT}/m.gguf", "sha256": "a" * 64}
_SECONDS = 120.0
_LISTENING = """
import socket, sys
server = socket.create_server(("", int(sys.argv[1])))
print("listening", flush=True)
while True:
    server.accept()[0].close()
"""
_CONNECTING = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5).close()
    print("arrives")
except OSError as error:
    print(f"stopped ({type(error).__name__})")
"""


@dataclass(frozen=True)
class Pod:
    """A pod that runs, and its address."""

    namespace: str
    name: str
    address: str


@dataclass(frozen=True)
class Packet:
    """The first packet of a connection, and whether the policy lets it arrive."""

    policy: str
    source: Pod
    target: Pod
    port: int
    allowed: bool

    def arrives(self, world: World) -> str:
        """Return `arrives`, or how the connection ended."""
        where = ("-n", self.source.namespace, "exec", self.source.name, "--", "python", "-c", _CONNECTING)
        return world.cluster.kubectl(*where, self.target.address, str(self.port)).strip()

    def __str__(self) -> str:
        """Return the policy and the way of the packet."""
        return f"{self.policy}: {self.source.name} to {self.target.name}:{self.port}"


def prove_policies(world: World) -> str:
    """Return how many packets did as their policy says, as `n of n`."""
    if which("ipset") is None or which("iptables") is None:
        raise DevclusterError("kube-router needs ipset and iptables", remedy="apt-get install ipset iptables")
    tenant, fetching = (
        Tenant(world.platform.postgres, name, world.platform.image) for name in ("policies", "policies-fetching")
    )
    world.platform.install("networkPolicy.enabled=true")
    tenant.create()
    tenant.store(rows(20))
    tenant.start_toolbox()
    tenant.apply_index()
    tenant.wait_ready()
    before = tenant.embedded()
    with ExitStack() as stack:
        elsewhere = _start_elsewhere(world)
        for port in (_OTHER_PORT, _FILES_PORT):
            stack.enter_context(_listening(world, elsewhere, port))
        packets = [*_packets(world, tenant, elsewhere), *_packets_of_fetching(world, fetching, elsewhere)]
        for packet in packets:
            assert packet.arrives(world) == "arrives", f"without enforcement: {packet}"
        stack.enter_context(_enforced(world))
        eventually(
            lambda: [f"{packet}: {found}" for packet in packets if (found := _fault(world, packet))],
            lambda seen: not seen,
            what="each packet does as its policy says",
            seconds=_SECONDS,
        )
        tenant.add(rows(1, first=101))
        tenant.wait_embedded(before + 1)
        tenant.wait_ready()
    for one in (tenant, fetching):
        one.remove()
    world.platform.install()
    world.cluster.kubectl("delete", "namespace", elsewhere.namespace, "--wait=false")
    return f"{len(packets)} of {len(packets)}"


def _fault(world: World, packet: Packet) -> str:
    """Return how a packet ended that did not do as its policy says; nothing if it did."""
    found = packet.arrives(world)
    return "" if (found == "arrives") == packet.allowed else found


def _packets(world: World, tenant: Tenant, elsewhere: Pod) -> list[Packet]:
    toolbox = _pod(world, tenant.name, f"app.kubernetes.io/name={objects.TOOLBOX}")
    embedder = _pod(world, tenant.name, "app.kubernetes.io/component=embedder")
    worker = _pod(world, tenant.name, "app.kubernetes.io/component=sync")
    operator = _pod(world, OPERATOR_NAMESPACE, OPERATOR_PODS)
    return [
        Packet("operator", operator, embedder, _EMBEDDER_PORT, allowed=True),
        Packet("operator", operator, elsewhere, _OTHER_PORT, allowed=False),
        Packet("embedder", toolbox, embedder, _EMBEDDER_PORT, allowed=True),
        Packet("embedder", elsewhere, embedder, _EMBEDDER_PORT, allowed=False),
        Packet("workers", worker, embedder, _EMBEDDER_PORT, allowed=True),
        Packet("workers", worker, elsewhere, _OTHER_PORT, allowed=False),
    ]


def _packets_of_fetching(world: World, fetching: Tenant, elsewhere: Pod) -> list[Packet]:
    """Have an index fetch its model, and return packets of a pod that its policy selects; the Job's own ends too early.

    The index does not become Ready: there is no such file.
    """
    fetching.create()
    fetching.store(rows(20))
    fetching.apply_index(embedding__source={"http": _MODEL_FILE})
    policy = f"/apis/networking.k8s.io/v1/namespaces/{fetching.name}/networkpolicies/{INDEX}-fetch"
    fetching.kubectl("wait", "--for=create", f"networkpolicy/{INDEX}-fetch", "--timeout=120s")
    labels = world.cluster.read(policy)["spec"]["podSelector"]["matchLabels"]
    pod = _start_toolbox(world, fetching.name, labels)
    return [
        Packet("fetch", pod, elsewhere, _FILES_PORT, allowed=True),
        Packet("fetch", pod, elsewhere, _OTHER_PORT, allowed=False),
    ]


def _start_elsewhere(world: World) -> Pod:
    """Start a pod in a namespace of its own, which no policy selects or allows."""
    namespace = "policies-elsewhere"
    secret = objects.dsn_secret(namespace, SECRET, KEY, "postgresql://none")
    world.cluster.apply(objects.namespace(namespace), secret)
    return _start_toolbox(world, namespace, {})


def _start_toolbox(world: World, namespace: str, labels: dict[str, str]) -> Pod:
    """Start a pod that sleeps, with these labels, and wait until it is ready."""
    name = f"of-{namespace}"
    pod = objects.toolbox(
        namespace, image=world.platform.image, secret=SECRET, key=KEY, embedder_url="http://none", name=name
    )
    pod["metadata"]["labels"] = labels
    world.cluster.apply(pod)
    world.cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")
    found = world.cluster.read(f"/api/v1/namespaces/{namespace}/pods/{name}")
    return Pod(namespace, name, found["status"]["podIP"])


def _pod(world: World, namespace: str, selector: str) -> Pod:
    """Return the running pod that a selector finds in a namespace."""
    found = json.loads(world.cluster.kubectl("-n", namespace, "get", "pods", f"--selector={selector}", "-o", "json"))
    (pod,) = (one for one in found["items"] if one["status"]["phase"] == "Running")
    return Pod(namespace, pod["metadata"]["name"], pod["status"]["podIP"])


@contextmanager
def _listening(world: World, pod: Pod, port: int) -> Iterator[None]:
    """Listen on a port of a pod for the block."""
    command = ("-n", pod.namespace, "exec", pod.name, "--", "python", "-c", _LISTENING, str(port))
    with subprocess.Popen(world.cluster.kubectl_command(*command), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "listening\n", f"{pod.name} cannot listen on {port}"
            yield
        finally:
            process.kill()


@contextmanager
def _enforced(world: World) -> Iterator[None]:
    """Have kube-router enforce policies in the node's network for the block, and remove its rules afterwards."""
    binaries = Binaries(world.settings, (KUBE_ROUTER,))
    binaries.ensure(world.reporter)
    program, log = str(binaries.path("kube-router")), world.scratch / "kube-router.log"
    command = [
        *(program, "--run-firewall=true", "--run-router=false", "--run-service-proxy=false"),
        f"--kubeconfig={Layout(INSIDE).internal_kubeconfig('admin')}",
        *(f"--hostname-override={NODE_NAME}", f"--service-cluster-ip-range={SERVICE_CIDR}"),
    ]
    with (
        log.open("w", encoding="utf-8") as output,
        world.cluster.popen_in_network(command, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield
            assert process.poll() is None, "kube-router ended by itself"
        except AssertionError as error:
            said = log.read_text(encoding="utf-8")[-2000:]
            raise AssertionError(f"{error}; kube-router's log ends: {said}") from error
        finally:
            process.kill()
            process.wait()
            # Its own --cleanup-config panics. kube-proxy has a table of its own, so the rules here are kube-router's.
            for rest in (("iptables", "-F"), ("iptables", "-X"), ("ipset", "destroy")):
                world.cluster.exec_in_network(rest)
