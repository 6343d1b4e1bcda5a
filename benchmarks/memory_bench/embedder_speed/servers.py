"""Starts the servers under test, each in a process of its own, and stops them."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_START_SECONDS = 180.0
# llama-server gives a thread to each open connection, and with one slot has three: others wait until one has been idle
# for 5 s, which is none of its speed.
_HTTP_THREADS = 64


@dataclass(frozen=True, slots=True)
class LlamaServerSettings:
    """The settings of llama-server that decide its speed."""

    slots: int
    ubatch: int
    flash_attention: str

    def options(self, threads: int, gpu_layers: int) -> list[str]:
        """As it takes them; each slot holds the longest text that is measured."""
        return [
            *("--n-gpu-layers", str(999 if gpu_layers < 0 else gpu_layers)),
            *("--parallel", str(self.slots), "--ctx-size", str(512 * self.slots)),
            *("--ubatch-size", str(self.ubatch), "--batch-size", str(self.ubatch)),
            *("--flash-attn", self.flash_attention),
            *("--threads", str(threads), "--threads-batch", str(threads)),
            *("--threads-http", str(_HTTP_THREADS)),
        ]


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"


LLAMA_SERVER_CANDIDATES = (
    LlamaServerSettings(slots=4, ubatch=512, flash_attention="on"),
    LlamaServerSettings(slots=4, ubatch=512, flash_attention="off"),
    LlamaServerSettings(slots=16, ubatch=2048, flash_attention="on"),
    LlamaServerSettings(slots=1, ubatch=512, flash_attention="on"),
)


@contextmanager
def ours(model: Path, log: Path, options: Sequence[str] = ()) -> Iterator[Server]:
    """`memory-embedder serve` as users start it; the block gets its address."""
    command = [sys.executable, "-m", "memory_embedder", "serve", "--host", "127.0.0.1", "--model-file", str(model)]
    # Each text of a run is new, so the cache of query vectors would never hit; without it that needs no proof.
    with _running([*command, "--query-cache", "0", *options], "/readyz", log) as server:
        yield server


@contextmanager
def llama_server(program: Path, model: Path, log: Path, options: Sequence[str]) -> Iterator[Server]:
    """llama.cpp's own server; the block gets its address."""
    command = [str(program), "--host", "127.0.0.1", "--model", str(model), "--embedding", "--no-webui"]
    with _running([*command, *options], "/health", log) as server:
        yield server


@contextmanager
def _running(command: list[str], ready: str, log: Path) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=output, stderr=subprocess.STDOUT, env=_environment()
        )
    try:
        _wait(process, f"http://127.0.0.1:{port}{ready}", log)
        yield Server(port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    # How long OpenMP's threads spin is set in this process by our engine; each server is to run as its users start it.
    return {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 -- an address of ours
            if answer.status == 200:
                return
        time.sleep(0.1)
    tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise RuntimeError(f"{Path(str(process.args[0])).name} was not ready in {_START_SECONDS:.0f} s:\n{tail}")  # type: ignore[index]  # the arguments are the list given above
