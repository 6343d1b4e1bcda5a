"""`memory status --kube` reads a MemoryIndex with a kubeconfig, from a server that answers as the API server does."""

import builtins
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from typer.testing import Result

from tests.support.invoked_command import invoke_memory

OBJECT = "/apis/memory-index.dev/v1alpha1/namespaces/{}/memoryindexes/mem"
EVENTS = "/api/v1/namespaces/{}/events"


def resource(status: str = "True", *, stalled: str = "False", reason: str = "Ready") -> dict[str, Any]:
    conditions = [
        {"type": "Ready", "status": status, "reason": reason, "message": "The remedy."},
        {"type": "Stalled", "status": stalled, "reason": reason, "message": "The remedy."},
    ]
    meta = {"name": "mem", "namespace": "team", "generation": 1, "uid": "u-1"}
    return {"metadata": meta, "status": {"observedGeneration": 1, "conditions": conditions}}


@dataclass
class ApiServer:
    """Answers by path: an object, or a status code with the message of a refusal."""

    answers: dict[str, dict[str, Any] | tuple[int, str]] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, list[str]], str | None]] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str) -> tuple[int, bytes]:
        found = self.answers.get(path, (404, "not found"))
        if isinstance(found, tuple):
            return found[0], json.dumps({"kind": "Status", "code": found[0], "message": found[1]}).encode()
        return 200, json.dumps(found).encode()


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            server.requests.append((parts.path, parse_qs(parts.query), self.headers.get("Authorization")))
            code, body = server.answer(parts.path)
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def kubeconfig(api: ApiServer, tmp_path: Path) -> Path:
    """Two contexts: one with a namespace, which is the current one, and one without."""
    path = tmp_path / "config"
    contexts = {"here": {"namespace": "team"}, "there": {}}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {"token": "t0ken"}}],
        "contexts": [
            {"name": name, "context": {"cluster": "c", "user": "u", **more}} for name, more in contexts.items()
        ],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def run(kubeconfig: Path, *arguments: str) -> Result:
    return invoke_memory(["status", "--kube", "mem", "--kubeconfig", str(kubeconfig), *arguments])


def serve(api: ApiServer, body: dict[str, Any], namespace: str = "team") -> None:
    event = {"metadata": {}, "lastTimestamp": "2026-11-24T10:00:00Z", "reason": "JobStarted", "message": "It began."}
    api.answers = {OBJECT.format(namespace): body, EVENTS.format(namespace): {"items": [event]}}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (resource(), 0, "MemoryIndex team/mem: Ready"),
        (resource("False", reason="Backfilling"), 3, "not Ready (Backfilling)"),
        (resource("Unknown", reason="Seen"), 3, "not Ready (Seen)"),
        (resource("False", stalled="True", reason="SecretMissing"), 4, "stalled (SecretMissing)"),
    ],
    ids=["ready", "at work", "unknown", "stalled"],
)
def test_the_exit_status_says_whether_it_is_ready_and_who_must_act(
    api: ApiServer, kubeconfig: Path, body: dict[str, Any], status: int, said: str
) -> None:
    serve(api, body)
    done = run(kubeconfig)
    assert done.exit_code == status, done.output
    assert said in done.stdout
    assert "JobStarted: It began." in done.stdout


def test_json_is_one_line_with_the_whole_pipeline(api: ApiServer, kubeconfig: Path) -> None:
    serve(api, resource("False", stalled="True", reason="SecretMissing"))
    done = run(kubeconfig, "--json")
    assert done.exit_code == 4
    (printed,) = done.stdout.splitlines()
    found = json.loads(printed)
    assert (found["ready"], found["stalled"], found["reason"]) == (False, True, "SecretMissing")
    assert found["stages"][0]["name"] == "database"
    assert found["events"][0]["reason"] == "JobStarted"


@pytest.mark.parametrize(
    ("arguments", "namespace"),
    [((), "team"), (("-n", "other"), "other"), (("--context", "there"), "default")],
    ids=["of the context", "named", "of a context without one"],
)
def test_object_and_events_are_read_with_the_users_own_credentials(
    api: ApiServer, kubeconfig: Path, arguments: tuple[str, ...], namespace: str
) -> None:
    serve(api, resource(), namespace)
    assert run(kubeconfig, *arguments).exit_code == 0
    (first, _, _), (second, query, _) = api.requests
    assert (first, second) == (OBJECT.format(namespace), EVENTS.format(namespace))
    assert query["fieldSelector"] == ["involvedObject.uid=u-1"]
    assert {credentials for _, _, credentials in api.requests} == {"Bearer t0ken"}


def test_an_account_that_may_not_list_events_sees_the_rest(api: ApiServer, kubeconfig: Path) -> None:
    serve(api, resource())
    api.answers[EVENTS.format("team")] = (403, "events is forbidden")
    done = run(kubeconfig)
    assert done.exit_code == 0
    assert "may not list Events" in done.stdout


def test_a_missing_object_is_named(api: ApiServer, kubeconfig: Path) -> None:
    done = run(kubeconfig)
    assert done.exit_code == 1
    assert "There is no MemoryIndex team/mem" in done.stderr


def test_a_refusal_of_the_api_server_is_quoted(api: ApiServer, kubeconfig: Path) -> None:
    api.answers[OBJECT.format("team")] = (403, "User jo cannot get resource memoryindexes")
    done = run(kubeconfig)
    assert done.exit_code == 1
    assert "KubernetesRejected" in done.stderr
    assert "User jo cannot get resource memoryindexes" in done.stderr


def test_a_server_that_is_not_there_is_reported_with_what_to_check(kubeconfig: Path, api: ApiServer) -> None:
    text = kubeconfig.read_text().replace(api.url, "http://127.0.0.1:9")  # the discard port, where nothing listens
    kubeconfig.write_text(text)
    done = run(kubeconfig)
    assert done.exit_code == 1
    assert "KubernetesUnreachable" in done.stderr
    assert "kubectl get namespaces" in done.stderr


@pytest.mark.parametrize("content", ["", "current-context: nowhere", "{", "a text"], ids=repr)
def test_an_unusable_kubeconfig_is_a_wrong_configuration(kubeconfig: Path, content: str) -> None:
    kubeconfig.write_text(content)
    done = run(kubeconfig)
    assert (done.exit_code, "InvalidConfiguration" in done.stderr) == (2, True), done.output


def test_a_context_that_does_not_exist_is_a_wrong_configuration(kubeconfig: Path) -> None:
    done = run(kubeconfig, "--context", "nowhere")
    assert (done.exit_code, "--context" in done.stderr) == (2, True), done.output


def test_without_the_client_the_line_that_installs_it_is_named(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("kubernetes"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    done = run(kubeconfig)
    assert done.exit_code == 2
    assert "pip install 'memory-recall[cli,kube]'" in done.stderr


def test_the_options_of_a_cluster_need_the_name_of_an_object() -> None:
    done = invoke_memory(["status", "--namespace", "team"])
    assert done.exit_code == 2
    assert "--kube" in done.stderr
