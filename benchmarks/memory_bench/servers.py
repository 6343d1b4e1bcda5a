"""Servers of models, each in a process of its own: our embedder and llama.cpp's llama-server."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

_START_SECONDS = 180.0
_NOTHING_MORE: Mapping[str, str] = MappingProxyType({})
# llama-server needs a thread for each open connection. By default it has three with one slot, and a further connection
# waits until another one has been idle for 5 s, which says nothing about its speed.
_HTTP_THREADS = 64


@dataclass(frozen=True, slots=True)
class LlamaServerSettings:
    """The settings of llama-server that decide its speed."""

    slots: int
    ubatch: int
    flash_attention: str

    def options(self, threads: int, gpu_layers: int) -> list[str]:
        """Return the command-line options; each slot holds the longest text that is measured, 512 tokens."""
        return [
            "--embedding",
            *("--n-gpu-layers", str(999 if gpu_layers < 0 else gpu_layers)),
            *("--parallel", str(self.slots), "--ctx-size", str(512 * self.slots)),
            *("--ubatch-size", str(self.ubatch), "--batch-size", str(self.ubatch)),
            *("--flash-attn", self.flash_attention),
            *("--threads", str(threads), "--threads-batch", str(threads)),
            *("--threads-http", str(_HTTP_THREADS)),
        ]


class ServerDidNotStartError(RuntimeError):
    """A server ended before it was ready, or did not become ready in time."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; `probe_port` serves its readiness and metrics."""

    port: int
    probe_port: int
    pid: int

    @property
    def url(self) -> str:
        """The base URL of the server."""
        return _address(self.port)

    @property
    def probe_url(self) -> str:
        """The base URL at which the server serves its readiness and metrics."""
        return _address(self.probe_port)


LLAMA_SERVER_CANDIDATES = (
    LlamaServerSettings(slots=4, ubatch=512, flash_attention="on"),
    LlamaServerSettings(slots=4, ubatch=512, flash_attention="off"),
    LlamaServerSettings(slots=16, ubatch=2048, flash_attention="on"),
    LlamaServerSettings(slots=1, ubatch=512, flash_attention="on"),
)


@contextmanager
def memory_embedder(
    model: Path, log: Path, options: Sequence[str] = (), *, environment: Mapping[str, str] = _NOTHING_MORE
) -> Iterator[Server]:
    """Run `memory-embedder serve` as users start it, and yield the server once it is ready.

    `environment` holds variables that are set in addition to those of this process.

    Raises:
        ServerDidNotStartError: the server ended or did not become ready; the message contains the end of its log.
    """
    port, probe_port = _free_port(), _free_port()
    command = [sys.executable, "-m", "memory_embedder", "serve", "--host", "127.0.0.1", "--model-file", str(model)]
    command += ["--port", str(port), "--probe-port", str(probe_port), *options]
    ready = f"{_address(probe_port)}/readyz"
    with _running("memory-embedder", command, ready, log, environment) as pid:
        yield Server(port, probe_port, pid)


@contextmanager
def llama_server(
    program: Path,
    model: Path,
    log: Path,
    options: Sequence[str],
    *,
    environment: Mapping[str, str] = _NOTHING_MORE,
) -> Iterator[Server]:
    """Run llama.cpp's own server, and yield it as a `Server` once it is ready.

    `environment` holds variables that are set in addition to those of this process.

    Raises:
        ServerDidNotStartError: the server ended or did not become ready; the message contains the end of its log.
    """
    port = _free_port()
    command = [str(program), "--host", "127.0.0.1", "--model", str(model), "--no-webui"]
    command += ["--port", str(port), *options]
    with _running("llama-server", command, f"{_address(port)}/health", log, environment) as pid:
        yield Server(port, port, pid)


@contextmanager
def running_server(name: str, command: Callable[[int], list[str]], ready_path: str, log: Path) -> Iterator[str]:
    """Run the command that `command` returns for a free port; yield the server's URL once `ready_path` answers 200.

    Raises:
        ServerDidNotStartError: the server ended or did not become ready; the message contains the end of its log.
    """
    address = _address(port := _free_port())
    with _running(name, command(port), address + ready_path, log):
        yield address


@contextmanager
def _running(
    name: str, command: list[str], ready_url: str, log: Path, environment: Mapping[str, str] = _NOTHING_MORE
) -> Iterator[int]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**_environment(), **environment}
        )
    try:
        _wait(process, name, ready_url, log)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _address(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _environment() -> dict[str, str]:
    # Our engine sets these variables in its own process; each server must run as its users start it.
    ours = ("GOMP_SPINCOUNT", "GGML_CUDA_DISABLE_GRAPHS")
    return {name: value for name, value in os.environ.items() if name not in ours}


def _wait(process: subprocess.Popen[bytes], name: str, url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 -- an address of ours
            if answer.status == 200:
                return
        time.sleep(0.1)
    code = process.poll()
    what = f"was not ready in {_START_SECONDS:.0f} s" if code is None else f"ended with status {code} at its start"
    tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise ServerDidNotStartError(f"{name} {what}:\n{tail}")
