"""What one hostile tenant gives the operator to read: URIs, names, answers, metrics, claims, versions, sizes and specs.

Each input is written with the rights of a user who may edit one namespace, or comes from a server or database of that
user. Many are refused by the API server or by the operator. None may stop the operator or delay other tenants. Each
group comes with the seconds for which its inputs are left to be read before the next group begins.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from devcluster.demo import objects
from devcluster.errors import DevclusterError
from tests.support.cluster.manifests import EMBEDDER_URL
from tests.support.cluster.tenants import INDEX, KEY, Tenant, manifest

SERVER = "answers"
SERVER_PORT, METRICS_PORT = 8080, 9090
_ESCAPES = "\x1b]52;c;x\x07\n2026 level=error forged"
_LABELS = {
    "app.kubernetes.io/name": "memory-index",
    "app.kubernetes.io/instance": INDEX,
    "app.kubernetes.io/managed-by": "memory-operator",
}
_SERVER_PROGRAM = r"""
import http.server, sys, threading, time
MODELS = {
    "deep": b"[" * 500_000,
    "digits": b'{"data": [{"id": "m", "dimensions": ' + b"9" * 900_000 + b"}]}",
    "many": b'{"data": [' + b",".join([b'{"id": "x"}'] * 80_000) + b"]}",
    "escapes": b'{"data": [{"id": "all-MiniLM-L6-v2", "digest": "\\u001b]52;c;x\\u0007\\n", "dimensions": 384}]}',
    "no-json": b"\xff" * 900_000,
}
QUOTES = b'memory_embedder_device_info{device="' + b'\\"' * 450_000 + b'"} 1\n'
LABELS = b"memory_embedder_device_info{" + b",".join(b'a%x=""' % one for one in range(80_000)) + b"} 1\n"
LINES = b"memory_embedder_device_info\n" * 35_000
METRICS = {"quotes": QUOTES, "labels": LABELS, "lines": LINES, "breaks": b"\n" * 900_000}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.strip("/").split("/")[0]
        self.send_response(302 if name == "redirect" else 200)
        if name == "redirect":
            self.send_header("Location", "http://169.254.169.254/")
        self.end_headers()
        while name == "endless":
            self.wfile.write(b" " * 65_536)
        while name == "slow":
            self.wfile.write(b" ")
            time.sleep(1)
        self.wfile.write(METRICS[sys.argv[1]] if name == "metrics" else MODELS.get(name, b""))
    def log_message(self, *arguments):
        pass
servers = [http.server.ThreadingHTTPServer(("", port), Handler) for port in (8080, 9090)]
threading.Thread(target=servers[0].serve_forever, daemon=True).start()
servers[1].serve_forever()
"""


@dataclass(frozen=True)
class Group:
    """Inputs of one kind by name; each is given by a function of the hostile tenant."""

    inputs: Mapping[str, Callable[[Tenant], None]]
    seconds: float = 20.0


def give(tenant: Tenant, write: Callable[[Tenant], None]) -> bool:
    """Give one input; return whether it was taken. What the API server refuses, no operator has to read."""
    try:
        write(tenant)
    except DevclusterError:
        return False
    return True


def start_server(tenant: Tenant) -> None:
    """Start the tenant's server of answers that cost much."""
    tenant.cluster.apply(
        _server(tenant, SERVER, {"app.kubernetes.io/name": SERVER}, "quotes"),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVER, "namespace": tenant.name},
            "spec": {"selector": {"app.kubernetes.io/name": SERVER}, "ports": [{"port": SERVER_PORT}]},
        },
    )
    tenant.kubectl("wait", "--for=condition=Ready", f"pod/{SERVER}", "--timeout=240s")


def _index(tenant: Tenant, name: str, dsn: str = "", **changes: Any) -> None:
    """Apply a MemoryIndex of its own table, with a Secret of its own if `dsn` is another connection URI."""
    external = {"embedder": {"external": {"url": EMBEDDER_URL}}}
    given = {"database__table": name.replace("-", "_"), **external, **changes}
    if dsn:
        tenant.cluster.apply(objects.dsn_secret(tenant.name, f"uri-{name}", KEY, dsn))
        given["database__credentials"] = {"secretName": f"uri-{name}", "key": KEY}
    body = manifest(tenant, given)
    body["metadata"]["name"] = name
    tenant.cluster.apply(body)


def _uri(change: Callable[[str], str]) -> Callable[[str], Callable[[Tenant], None]]:
    return lambda name: lambda tenant: _index(tenant, name, change(tenant.dsn))


def _at(host: str) -> Callable[[str], str]:
    """Return a change of a connection URI that leads it to another host, which may have a port."""

    def change(dsn: str) -> str:
        parts = urlsplit(dsn)
        return parts._replace(netloc=f"{parts.username}:{parts.password}@{host}").geturl()

    return change


def _asking(parameter: str) -> Callable[[str], str]:
    return lambda dsn: f"{dsn}{'&' if '?' in dsn else '?'}{parameter}"


_URIS: dict[str, Callable[[str], str]] = {
    **{
        f"uri-{name}": _asking(f"sslmode=require&{name}=/dev/ptmx")
        for name in ("sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile", "servicefile")
    },
    "uri-stdout": _asking("sslmode=require&sslrootcert=/dev/stdout"),
    "uri-service": _asking("service=other"),
    "uri-options": _asking("options=-c%20session_preload_libraries%3Dx"),
    "uri-socket": lambda _: "postgresql://o:p@/app?host=/var/run/postgresql",
    "uri-port": _at(f"db:{'9' * 5000}"),
    "uri-hosts": _at(",".join(f"a{number}.invalid:5432" for number in range(500))),
    "uri-escapes": _at(f"db{_ESCAPES}"),
    "uri-long": _asking(f"application_name={'x' * 900_000}"),
    "uri-loopback": _at("127.0.0.1:9090"),
    "uri-link-local": _at("169.254.169.254:80"),
}
_NAMES = {
    **{f"name-{number}": _at(f"nobody-{number}.nowhere.example:5432") for number in range(6)},
    "name-long": _at(f"{'a.' * 100}example:5432"),
}
_ANSWERS = ("deep", "digits", "many", "escapes", "no-json", "endless", "slow", "redirect")
_METRICS = ("quotes", "labels", "lines", "breaks")
_CLAIMS = {
    "claim-deep": "[" * 200_000,
    "claim-long": json.dumps({"system_identifier": "1", "namespace": "x" * 500_000, "name": "x", "uid": "x"}),
    "claim-escapes": json.dumps(dict.fromkeys(("namespace", "name", "uid", "created_at", "kubernetes"), _ESCAPES)),
    "claim-path": json.dumps(
        dict.fromkeys(("system_identifier", "uid", "created_at", "kubernetes"), "1")
        | {"namespace": "..", "name": "../../secrets/x"}
    ),
}
_VERSIONS = {
    "version-digits": "9" * 5000,
    "version-superscript": "0.8.\N{SUPERSCRIPT TWO}",
    "version-escapes": _ESCAPES,
}


def _answer(path: str) -> Callable[[Tenant], None]:
    def write(tenant: Tenant) -> None:
        url = f"http://{SERVER}.{tenant.name}.svc:{SERVER_PORT}/{path}"
        _index(tenant, f"answer-{path}", embedder={"external": {"url": url}})

    return write


def _metrics(page: str, *, forged: bool) -> Callable[[Tenant], None]:
    """Return an input: a pod with the labels of an embedder, whose owner reference names a Job if it is forged."""

    def write(tenant: Tenant) -> None:
        pod = _server(tenant, f"metrics-{page}", {**_LABELS, "app.kubernetes.io/component": "embedder"}, page)
        if forged:
            job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "00000000-0000-0000-0000-000000000001"}
            pod["metadata"] |= {"name": f"forged-{page}", "ownerReferences": [{**job, "controller": True}]}
        tenant.cluster.apply(pod)

    return write


def _server(tenant: Tenant, name: str, labels: dict[str, str], page: str) -> dict[str, Any]:
    pod = objects.toolbox(tenant.name, image=tenant.image, secret="dsn", key=KEY, embedder_url="", name=name)
    container = pod["spec"]["containers"][0]
    container["command"] = ["python", "-c", _SERVER_PROGRAM, page]
    container["readinessProbe"] = {"tcpSocket": {"port": METRICS_PORT}, "periodSeconds": 1}
    container["resources"] = {"requests": {"cpu": "10m", "memory": "32Mi"}}
    pod["metadata"]["labels"] = labels
    return dict(pod)


def _claim(text: str) -> Callable[[Tenant], None]:
    quoted = text.replace("'", "''")
    return lambda tenant: _superuser(tenant, f"COMMENT ON TABLE memory_index_state IS '{quoted}'")


def _version(text: str) -> Callable[[Tenant], None]:
    statement = f"UPDATE pg_extension SET extversion = '{text}' WHERE extname = 'vector'"
    return lambda tenant: _superuser(tenant, statement)


def _superuser(tenant: Tenant, statement: str) -> None:
    tenant.sql(statement)


def _large(kind: str, api_version: str, spec: dict[str, Any], **meta: Any) -> Callable[[Tenant], None]:
    def write(tenant: Tenant) -> None:
        found = {"name": f"large-{kind.lower()}", "namespace": tenant.name, "labels": _LABELS, **meta}
        copies = [{**found, "name": f"{found['name']}-{number}"} for number in range(20)]
        tenant.cluster.apply(
            *({"apiVersion": api_version, "kind": kind, "metadata": one, "spec": spec} for one in copies)
        )

    return write


_ANNOTATED = {"annotations": {"x": "y" * 200_000}}
_OWNED = {
    "ownerReferences": [
        {
            "apiVersion": "memory-index.dev/v1alpha1", "kind": "MemoryIndex", "name": INDEX, "controller": True,
            "uid": "00000000-0000-0000-0000-000000000001",
        }
    ]
}  # fmt: skip
_POD = {
    "metadata": {"labels": {"app": "large"}},
    "spec": {"containers": [{"name": "x", "image": "x", "env": [{"name": "X", "value": "y" * 200_000}]}]},
}
_SIZES = {
    "large-services": _large("Service", "v1", {"ports": [{"port": 80}]}, **_ANNOTATED),
    "large-owned-services": _large("Service", "v1", {"ports": [{"port": 80}]}, **_ANNOTATED, **_OWNED),
    "large-deployments": _large(
        "Deployment", "apps/v1", {"replicas": 0, "selector": {"matchLabels": {"app": "large"}}, "template": _POD},
        **_OWNED,
    ),
    "large-policies": _large(
        "NetworkPolicy", "networking.k8s.io/v1",
        {"podSelector": {}, "egress": [{"ports": [{"port": 1 + number}]} for number in range(5000)]}, **_OWNED,
    ),
}  # fmt: skip
_SPECS: dict[str, dict[str, Any]] = {
    "spec-environment": {
        "embedder__podTemplate": {"env": [{"name": f"X{number}", "value": "y" * 100} for number in range(1000)]}
    },
    "spec-affinity": {"embedder__podTemplate": {"affinity": {"nodeAffinity": {"x": ["y" * 1000] * 200}}}},
    "spec-variables": {"embedding__queryPrefix": "$(MEMORY_DATABASE_URL_FILE)" * 20},
    "spec-table": {"database__table": "\"quoted'; --"},
    "spec-version": {"database__extension__minimumVersion": "9" * 60},
}

GROUPS: Mapping[str, Group] = {
    "uris": Group({name: _uri(change)(name) for name, change in _URIS.items()}),
    "names": Group({name: _uri(change)(name) for name, change in _NAMES.items()}, seconds=40.0),
    "answers": Group({f"answer-{path}": _answer(path) for path in _ANSWERS}),
    "metrics": Group(
        {
            **{f"metrics-{page}": _metrics(page, forged=False) for page in _METRICS},
            **{f"forged-{page}": _metrics(page, forged=True) for page in _METRICS},
        }
    ),
    "claims": Group({name: _claim(text) for name, text in _CLAIMS.items()}),
    "versions": Group({name: _version(text) for name, text in _VERSIONS.items()}),
    "sizes": Group(_SIZES),
    "specs": Group({name: lambda tenant, name=name: _index(tenant, name, **_SPECS[name]) for name in _SPECS}),  # type: ignore[misc]  # mypy infers no default
}
