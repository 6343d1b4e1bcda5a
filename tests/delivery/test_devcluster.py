"""The cluster itself: it starts beside others, leaves nothing whatever ends it, and is a real one while it runs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from devcluster.node import cgroups, launch
from devcluster.node.layout import Layout, Plan
from devcluster.retrying import until
from devcluster.settings import Settings
from memory_operator.resources.quantities import same_quantity
from tests.delivery.devcluster_traces import Traces, traces_of

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
DEVCLUSTER = (sys.executable, "-m", "devcluster")
ATTACHED = """
import signal, sys, devcluster
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
with devcluster.start(sys.argv[1]) as cluster:
    print("up", flush=True)
    sys.stdin.read()
"""


def devcluster(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*DEVCLUSTER, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a cluster of one's own, ended whatever happens."""
    name = f"own-{os.getpid()}"
    yield name
    devcluster("down", "--name", name)


@pytest.fixture
def detached(name: str) -> Traces:
    """A cluster of one's own, started by the command line and left running."""
    started = devcluster("up", "--no-cnpg", "--name", name)
    assert started.returncode == 0, started.stderr
    traces = traces_of(name)
    assert started.stdout.strip() == f"export KUBECONFIG={traces.layout.kubeconfig}"
    return traces


def test_a_detached_cluster_runs_beside_another_and_leaves_only_logs(cluster: Cluster, detached: Traces) -> None:
    """Two at once are two API servers; `down` removes processes, mounts, control groups and data of one."""
    own = json.loads(
        devcluster("kubectl", "--name", detached.name, "--", "get", "namespace", "default", "-o", "json").stdout
    )
    other = cluster.kubectl_json("get", "namespace", "default")
    assert own["metadata"]["uid"] != other["metadata"]["uid"]
    assert detached.processes()

    again = devcluster("up", "--no-cnpg", "--name", detached.name)
    assert again.returncode == 1
    assert "already running" in again.stderr

    assert devcluster("down", "--name", detached.name).returncode == 0
    assert detached.left() == {}
    assert (detached.layout.logs / "apiserver.log").stat().st_size > 0
    assert cluster.nodes() == ["node1"]


def test_killing_the_outer_process_leaves_nothing(detached: Traces) -> None:
    """`kill -9` of the keeper runs no clean-up of its own; the kernel and the janitor see to it."""
    os.kill(detached.keeper, signal.SIGKILL)
    detached.wait_until_ended()
    assert detached.left() == {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill-9", "ctrl-c"])
def test_an_attached_cluster_ends_with_the_process_that_started_it(name: str, number: signal.Signals) -> None:
    """Neither Ctrl-C nor `kill -9` of a test session leaves a cluster behind."""
    command = [sys.executable, "-c", ATTACHED, name]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout is not None
        assert "up" in session.stdout.readline()
        traces = traces_of(name)
        session.send_signal(number)
        session.wait(timeout=120)
    traces.wait_until_ended()
    assert traces.left() == {}


def test_a_node_that_cannot_start_says_which_component_failed_and_leaves_nothing(name: str) -> None:
    """The end of the component's log is in the message; logs stay."""
    code = (
        "import sys, devcluster.drivers.node as node\n"
        "original = node.NodeDriver._programs\n"
        "node.NodeDriver._programs = lambda self: {**original(self), 'etcd': node.Path('/bin/false')}\n"
        "from devcluster.cli import main\n"
        "sys.argv = ['devcluster', 'up', '--no-cnpg', '--name', sys.argv[1]]\n"
        "main()\n"
    )
    failed = subprocess.run([sys.executable, "-c", code, name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "etcd ended with status 1" in failed.stderr
    layout = Layout(Settings().state_dir / name)
    assert not launch.is_running(layout)
    assert not layout.data.exists()
    assert cgroups.existing(Plan.cgroup_of(name)) == []
    assert layout.events.exists()


def test_programs_of_this_machine_resolve_and_reach_services_inside(cluster: Cluster) -> None:
    """This is how the operator runs from the working tree."""
    script = "import socket; socket.create_connection(('kubernetes.default.svc', 443), 10); print(socket.getfqdn('x'))"
    cluster.exec_in_network([sys.executable, "-c", script])
    assert "kube-system" in cluster.exec_in_network(["sh", "-c", f"{cluster.kubectl_command()[0]} get namespaces"])


def test_a_command_inside_ends_with_the_process_that_stands_for_it(cluster: Cluster) -> None:
    """A killed `make run-operator` leaves no operator behind."""
    inside = cluster.popen_in_network(["sh", "-c", "echo started; exec sleep 12345"], stdout=subprocess.PIPE, text=True)
    assert inside.stdout is not None
    assert inside.stdout.readline() == "started\n"
    inside.kill()
    inside.wait()
    inside.stdout.close()
    until("the command inside has ended", lambda: not _sleepers(), seconds=20)


def test_writes_are_in_the_audit_log_and_reads_are_not(cluster: Cluster) -> None:
    """The tests that count an operator's writes depend on this."""
    cluster.kubectl("create", "configmap", "audited", "-n", "default")
    cluster.kubectl("get", "configmap", "audited", "-n", "default")
    lines = [line for line in cluster.audit_log.read_text(encoding="utf-8").splitlines() if '"audited"' in line]
    events = [json.loads(line) for line in lines]
    assert [event["verb"] for event in events] == ["create"]
    assert "requestObject" not in events[0]
    cluster.kubectl("delete", "configmap", "audited", "-n", "default")


def test_an_extended_resource_is_scheduled_by_count(cluster: Cluster) -> None:
    """It is offered at once and stays through kubelet's own updates of the status."""
    cluster.patch_extended_resource("example.com/seat", 2)
    (node,) = cluster.kubectl_json("get", "nodes")["items"]
    assert same_quantity(node["status"]["allocatable"]["example.com/seat"], 2)
    cluster.patch_extended_resource("example.com/seat", None)
    (node,) = cluster.kubectl_json("get", "nodes")["items"]
    assert "example.com/seat" not in node["status"]["capacity"]


def _sleepers() -> list[str]:
    found = subprocess.run(["pgrep", "-f", "^sleep 12345$"], capture_output=True, text=True, check=False)
    return found.stdout.split()
