"""A running `memory-embedder serve`, for tests of the process as a whole."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.embedder_process import OWN_PORTS, listening_ports

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


def launch(
    model_file: Path, log: Path, *options: str, env: dict[str, str] | None = None, until: str | None = None
) -> Served:
    """Starts a server, which chooses its ports, and waits until it is ready, refuses to serve or is gone.

    With `until`, waits only until that is in its log. A server that is gone before it has opened its ports has none.
    """
    command = [*PROGRAM, "serve", "--host", "127.0.0.1", *OWN_PORTS]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--model-file", str(model_file), *options], stderr=output, env=os.environ | (env or {})
        )
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"the server was not ready in {START_SECONDS:.0f} s:\n{log.read_text()}")
        if (ports := listening_ports(log)) is not None:
            served = _served(process, ports, log)
            with contextlib.suppress(httpx.TransportError):
                if served.refusal() != "loading" or (until is not None and until in log.read_text()):
                    return served
        time.sleep(0.1)
    return _served(process, listening_ports(log) or (0, 0), log)


def _served(process: subprocess.Popen[bytes], ports: tuple[int, int], log: Path) -> Served:
    url, probe_url = (f"http://127.0.0.1:{port}" for port in ports)
    return Served(process, url, probe_url, log)
