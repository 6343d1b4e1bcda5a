"""Runs the embedder as users start it.

It chooses its ports itself. One that a test had chosen could be another process's before the embedder opens it.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from devcluster.retrying import until

OWN_PORTS = ("--port", "0", "--probe-port", "0")
_SECONDS = 120.0
_PROGRAM = (sys.executable, "-m", "memory_embedder")


@contextlib.contextmanager
def running_embedder(
    model: Path, *options: str, program: Sequence[str] = _PROGRAM, seconds: float = _SECONDS
) -> Iterator[str]:
    """Run the embedder with the file of the default model on the CPU, and yield its URL once it is ready.

    `options` are further ones of its command line; `program` begins it, and is ready within `seconds`.
    """
    command = [
        *program, "serve", "--model", "all-MiniLM-L6-v2", "--model-file", str(model),
        "--gpu-layers", "0", "--allow-cpu", "--host", "127.0.0.1", *OWN_PORTS, *options,
    ]  # fmt: skip
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        ports = partial(listening_ports, Path(log.name))
        try:
            until("the embedder is ready", lambda: _is_ready(ports()), seconds=seconds)
            opened = ports()
            assert opened is not None
            yield f"http://127.0.0.1:{opened[0]}"
        finally:
            process.terminate()
            process.wait()


def listening_ports(log: Path) -> tuple[int, int] | None:
    """Return the ports for callers and for probes that an embedder has opened, or None until its log names them."""
    for line in log.read_text().splitlines():
        if '"Listening"' in line and line.endswith("}"):
            event = json.loads(line)
            return int(event["port"]), int(event["probe_port"])
    return None


def _is_ready(ports: tuple[int, int] | None) -> bool:
    with contextlib.suppress(OSError):
        if ports is not None:
            with urllib.request.urlopen(f"http://127.0.0.1:{ports[1]}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
    return False
