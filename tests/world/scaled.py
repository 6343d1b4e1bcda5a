"""An embedder whose pods come and go: the load on it, and the numbers of its ready pods that were seen."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen

import typer

from devcluster.demo.objects import TOOLBOX
from tests.support.cluster.memories import rows
from tests.support.cluster.tenants import INDEX, Tenant
from tests.support.waiting import eventually

EMBEDDER = f"{INDEX}-embedder"
EXPECTED = [0, 1, 2, 1, 0]
"""The numbers of ready pods that a test is to see, one after the other."""
LIGHT, HEAVY = (3, 16), (8, 128)
"""Callers, and texts of each of their requests: one pod can do with the first, and has far too much with the second."""

_LOADING = Path(__file__).with_name("loading.py")
_POLL_SECONDS = 0.5


class ReadyPods:
    """The numbers of ready embedder pods that were seen, each once for as long as it stayed, and when each was."""

    def __init__(self, tenant: Tenant) -> None:
        self._path = f"/apis/apps/v1/namespaces/{tenant.name}/deployments/{EMBEDDER}"
        self._tenant = tenant
        self._began = time.monotonic()
        self._ended = threading.Event()
        self.seen: list[int] = []
        self.at: list[float] = []

    def now(self) -> int:
        """Return how many pods are ready at this moment."""
        return int(self._tenant.cluster.read(self._path)["status"].get("readyReplicas", 0))

    def existing(self) -> str:
        """Return the names of all pods, also of those that start or end."""
        return self._tenant.kubectl("get", "pods", "-l", "app.kubernetes.io/component=embedder", "-o", "name")

    @contextmanager
    def recorded(self) -> Iterator["ReadyPods"]:
        """Look again and again during the block, and print when each number was seen."""
        thread = threading.Thread(target=self._record, daemon=True)
        self._began = time.monotonic()
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()
            moments = zip(self.seen, self.at, strict=True)
            typer.echo(", ".join(f"{count} ready pods after {at:.0f} s" for count, at in moments), err=True)

    def wait(self, count: int) -> None:
        """Wait until the last number that was seen is this one."""
        eventually(lambda: list(self.seen), lambda seen: seen[-1:] == [count], what=f"{count} ready pods", seconds=300)

    def _record(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            count = self.now()
            if self.seen[-1:] != [count]:
                self.seen.append(count)
                self.at.append(time.monotonic() - self._began)


@contextmanager
def load(tenant: Tenant, amount: tuple[int, int]) -> Iterator[None]:
    """Have callers in the toolbox pod embed texts without pause during the block."""
    callers, texts = amount
    script = _LOADING.read_text(encoding="utf-8")
    command = ("exec", "-i", TOOLBOX, "--", "python", "-c", script, f"http://{EMBEDDER}:8080", str(callers), str(texts))
    process = Popen(tenant.cluster.kubectl_command("-n", tenant.name, *command), stdin=-1, stdout=DEVNULL)
    try:
        yield
        assert process.poll() is None, "the load ended before its time; what it printed is above"
    finally:
        process.communicate(timeout=60)  # closes its standard input, at which it ends


def create_index(tenant: Tenant, embedder: Mapping[str, object]) -> ReadyPods:
    """Create an index with these fields of its embedder, and wait until its few rows have vectors."""
    tenant.create()
    tenant.store(rows(5))
    tenant.apply_index(**{f"embedder__{name}": value for name, value in embedder.items()})
    tenant.start_toolbox()
    tenant.wait_embedded(4)
    return ReadyPods(tenant)


def drive(tenant: Tenant, pods: ReadyPods) -> list[int]:
    """Have a recall wake the embedder, and load it, less, and no more; return the numbers of ready pods seen."""
    # A pod that ends serves for some seconds more.
    eventually(pods.existing, lambda names: not names, what="an embedder that nobody needs has no pods", seconds=300)
    with pods.recorded():
        pods.wait(0)
        answer = tenant.memory("recall", "where is the lantern?", "--everyone")
        assert answer.get("degraded"), f"a recall without an embedder is not said to be by words alone: {answer}"
        pods.wait(1)
        with load(tenant, LIGHT):
            with load(tenant, HEAVY):
                pods.wait(2)
            pods.wait(1)
        pods.wait(0)
    return pods.seen
