"""Every option of every command of `memory-embedder` is given to a command that really runs, on the default model.

The lines run one after another in one folder. What `serve` makes of its options is looked at where the server would
start; other modules start it.
"""

import hashlib
import json
import shlex
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

import memory_embedder.server
from devcluster.node.pki import Authority
from memory_embedder.cli import app
from memory_embedder.models import fetch_addresses
from memory_embedder.settings import EmbedderSettings
from memory_operator.cli import app as operator
from tests.option_tree import options_given, options_of

DIGEST = "a" * 64
SERVED: dict[str, object] = {
    "model": "mine", "model_file": Path("mine.gguf"), "digest": DIGEST, "dimensions": 384, "pooling": "mean",
    "max_tokens": 256, "alias": ["yours", "an/other"], "query_prefix": "q: ", "document_prefix": "d: ",
    "reranker": "theirs",
    "reranker_file": Path("theirs.gguf"), "reranker_digest": DIGEST, "reranker_max_tokens": 512, "gpu_layers": -1,
    "allow_cpu": True, "gpu_memory_limit": 1000, "contexts": 2, "batch_tokens": 1024, "host": "127.0.0.1", "port": 8123,
    "probe_port": 8124, "shutdown_delay_seconds": 1.5, "api_key_file": Path("key"),
    "tls_certificate_file": Path("tls.crt"), "tls_key_file": Path("tls.key"), "otlp_endpoint": "http://otlp:4318",
}  # fmt: skip


def _values(given: object) -> list[object]:
    return given if isinstance(given, list) else [given]


FLAGS = {name: f"--{name.replace('_', '-')}" for name in SERVED}
SERVE = "serve " + " ".join(
    flag if value is True else f"{flag} {shlex.quote(str(value))}"
    for name, flag in FLAGS.items()
    for value in _values(SERVED[name])
)
LINES = """
models
default-model made.gguf --package {package} --type f32
convert {directory} converted.gguf --type f16
copy converted.gguf copied.gguf --sha256 {digest}
fetch --url {url}/converted.gguf --sha256 {digest} --to got.gguf --max-mebibytes 99 --ca-file ca.crt --proxied-host .x
vectors made.gguf texts.jsonl reference.jsonl --model all-MiniLM-L6-v2 --gpu-layers 0
verify got.gguf --against reference.jsonl --model all-MiniLM-L6-v2 --least 0.99 --gpu-layers 0
bench copied.gguf --model all-MiniLM-L6-v2 --tokens 8 --seconds 0.01 --gpu-layers 0
"""


@pytest.mark.finding("database F8")
def test_every_option_is_in_a_line() -> None:
    lines = [*LINES.strip().splitlines(), SERVE]
    assert len(options_of(app)) > 30
    assert sorted(options_of(app) - options_given(app, lines)) == []
    assert options_of(operator) == set(), "give each option of the operator to a command that runs"


@pytest.mark.finding("database F8")
def test_serve_takes_each_of_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[EmbedderSettings] = []

    def serve(settings: EmbedderSettings) -> int:
        taken.append(settings)
        return 0

    monkeypatch.setattr(memory_embedder.server, "serve", serve)
    done = CliRunner().invoke(app, shlex.split(SERVE))
    assert done.exit_code == 0, done.output
    assert {name: getattr(taken[0], name) for name in SERVED} == SERVED
    assert CliRunner().invoke(app, ["serve", "mine.gguf"]).exit_code == 0
    assert taken[1] == EmbedderSettings(model_file=Path("mine.gguf"))


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Serves the files of the test's folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.finding("database F8")
def test_the_lines_run(
    model_package: Path, model_directory: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fetch_addresses, "is_forbidden", lambda _address: False)  # those of this machine are
    Path("ca.crt").write_bytes(Authority().certificate)
    Path("texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("a kettle", "a harbour")))
    names = {"package": model_package, "directory": model_directory, "url": address}
    for line in LINES.strip().splitlines():
        words = line.split()
        digest = hashlib.sha256(Path("converted.gguf").read_bytes()).hexdigest() if "{digest}" in words else ""
        done = CliRunner().invoke(app, [word.format(digest=digest, **names) for word in words])
        assert done.exit_code == 0, (line, done.output, done.exception)
