"""The pooler of an hour of faults ends with the process that was started for it, as root."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from devcluster.drivers.node import NodeCluster
from tests.soak import pooler as pooler_module
from tests.soak.pooler import Pooler
from tests.support.ports import reserved_ports
from tests.support.waiting import eventually


@pytest.fixture
def pooler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pooler]:
    """A PgBouncer on a port of its own. A shell that waits for its child stands for nsenter."""

    def popen_in_network(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sh", "-c", '"$@"; exit', "sh", *command], **options)

    (tmp_path / "pgbouncer.log").touch()
    cluster = SimpleNamespace(logs=tmp_path, popen_in_network=popen_in_network)
    with reserved_ports(1) as (port,):
        monkeypatch.setattr(pooler_module, "PORT", port)
        made = Pooler(cast("NodeCluster", cluster), "postgresql://user:word@127.0.0.1:1/name")
        yield made
        for left in made._processes():
            os.kill(left, signal.SIGKILL)
        made.close()


def test_a_pooler_ends_with_the_process_that_was_started_for_it_and_another_takes_its_port(pooler: Pooler) -> None:
    assert len(pooler._processes()) == 1
    pooler._process.kill()
    pooler._process.wait(10)
    eventually(pooler._processes, lambda found: not found, what="PgBouncer has ended", seconds=20)
    pooler.revive()
    assert (pooler.ended, len(pooler._processes())) == (1, 1)
