"""The cluster that the workers of one test run share, and the locks by which some tests have it for themselves.

The worker that needs the cluster first starts it, and the last that uses it ends it. A worker is a process of
pytest-xdist; without pytest-xdist there is one.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import devcluster
from devcluster.cluster import Cluster
from devcluster.locks import locked
from devcluster.postgres import Postgres
from tests.support.cluster.platform import Platform
from tests.support.waiting import eventually

LONGEST_WAIT_SECONDS = 1200.0  # other modules take many minutes on a busy machine


class SharedCluster:
    """What one worker knows of the shared cluster; `directory` is the same for all workers of a run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._record = directory / "platform.json"
        self._name = f"e2e-{directory.stat().st_ino}"  # of its own for each run on this machine

    @contextmanager
    def opened(self) -> Iterator[Cluster]:
        """Start the cluster, or join it if another worker has started it.

        After the block it is ended, unless another worker uses it.
        """
        with locked(self._directory / "start.lock"):
            cluster = devcluster.find(self._name) or devcluster.start(self._name)
            users = _flock(self._directory / "users.lock", fcntl.LOCK_SH)
        try:
            yield cluster
        finally:
            os.close(users)
            with locked(self._directory / "start.lock"):
                if _is_free(self._directory / "users.lock"):
                    cluster.close()
                    devcluster.stop(self._name)  # if another worker has started it
                    self._record.unlink(missing_ok=True)  # a worker that comes later starts anew

    def platform(self, cluster: Cluster, create: Callable[[Cluster], Platform]) -> Platform:
        """Return what `create` installs in the cluster; it is installed by the worker that needs it first."""
        with locked(self._directory / "platform.lock"):
            if self._record.exists():
                kept = json.loads(self._record.read_text(encoding="utf-8"))
                return Platform(Postgres(cluster, *kept["postgres"]), kept["image"], kept["embedder_image"])
            platform = create(cluster)
            postgres = (platform.postgres.namespace, platform.postgres.name)
            kept = {"postgres": postgres, "image": platform.image, "embedder_image": platform.embedder_image}
            self._record.write_text(json.dumps(kept), encoding="utf-8")
            return platform

    @contextmanager
    def used(self, *, exclusively: bool) -> Iterator[None]:
        """Use the cluster during the block, beside other workers or, with `exclusively`, while no other uses it."""
        descriptor = _flock(self._directory / "use.lock", fcntl.LOCK_EX if exclusively else fcntl.LOCK_SH)
        try:
            yield
        finally:
            os.close(descriptor)

    def finish(self, module: str) -> None:
        """Record for all workers that the tests of a module have ended."""
        (self._directory / f"{module}.finished").touch()

    def wait_finished(self, modules: set[str]) -> None:
        """Wait until the tests of all these modules have ended, in whichever workers they run."""
        what = f"the tests of {', '.join(sorted(modules))} have ended"
        finished = {self._directory / f"{module}.finished" for module in modules}
        eventually(lambda: all(map(Path.exists, finished)), bool, what=what, seconds=LONGEST_WAIT_SECONDS)


def _flock(path: Path, operation: int) -> int:
    """Take a lock on a file, and return the descriptor that holds the lock until it is closed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def taken() -> bool:
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    eventually(taken, bool, what=f"{path.name} is free", seconds=LONGEST_WAIT_SECONDS)
    return descriptor


def _is_free(path: Path) -> bool:
    """Return whether nobody holds the lock on a file."""
    with path.open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
