"""A running `memory-embedder serve`, for tests of the process as a whole."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

# The program under test, as words of a shell: `make e2e-world` gives one for another architecture, under emulation.
PROGRAM = shlex.split(os.environ.get("MEMORY_EMBEDDER_PROGRAM", "")) or [sys.executable, "-m", "memory_embedder"]
START_SECONDS = float(os.environ.get("MEMORY_EMBEDDER_START_SECONDS", "120"))


@dataclass
class Served:
    """A running `memory-embedder serve`."""

    process: subprocess.Popen[bytes]
    url: str
    probe_url: str
    log: Path

    def refusal(self) -> str | None:
        """The code of the error that readiness answers, or None if the server is ready."""
        answer = httpx.get(f"{self.probe_url}/readyz", timeout=5)
        return None if answer.status_code == 200 else str(answer.json()["error"]["code"])

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(90)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def launch(
    model_file: Path, log: Path, *options: str, env: dict[str, str] | None = None, until: str | None = None
) -> Served:
    """Starts a server on ports that the system chose and waits until it is ready, refuses to serve or is gone.

    With `until`, waits only until that is in its log.
    """
    port, probe_port = free_port(), free_port()
    command = [*PROGRAM, "serve", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--probe-port", str(probe_port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--model-file", str(model_file), *options], stderr=output, env=os.environ | (env or {})
        )
    served = Served(process, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{probe_port}", log)
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"the server was not ready in {START_SECONDS:.0f} s:\n{log.read_text()}")
        with contextlib.suppress(httpx.TransportError):
            if served.refusal() != "loading" or (until is not None and until in log.read_text()):
                break
        time.sleep(0.1)
    return served
