"""A recording embedder: it passes each request on to the embedder that all objects share, and logs when texts came.

The first part of the path names the tenant, so that one pod records the texts of many. The pod has two Services, so
that one host name can be struck from the permitted hosts while the other stays.
"""

from dataclasses import dataclass

from devcluster.cluster import Cluster
from devcluster.demo import objects
from tests.support.cluster.manifests import EMBEDDER_URL

NAMESPACE = "recorder"
HOSTS = {name: f"{name}.{NAMESPACE}.svc" for name in ("kept", "struck")}
_PORT = 8080
_HOP_BY_HOP = ("connection", "content-length", "date", "server", "transfer-encoding")
_PROGRAM = f"""
import http.server, json, os, time, urllib.error, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        tenant, _, path = self.path.lstrip("/").partition("/")
        texts = json.loads(body).get("input", []) if body else []
        if texts:
            count = 1 if isinstance(texts, str) else len(texts)
            os.write(1, f"text {{time.time():.3f}} {{tenant}} {{count}}\\n".encode())  # a line at once
        headers = {{name: value for name, value in self.headers.items() if name.lower() in ("content-type", "accept")}}
        request = urllib.request.Request("{EMBEDDER_URL}/" + path, body or None, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as found:
                status, headers, body = found.status, found.headers, found.read()
        except urllib.error.HTTPError as error:
            status, headers, body = error.code, error.headers, error.read()
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in {_HOP_BY_HOP}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(b"")
    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer(("", {_PORT}), Handler).serve_forever()
"""


@dataclass(frozen=True)
class Text:
    """Texts that the embedder got in one request: the time in seconds since the epoch, and how many there were."""

    at: float
    count: int


@dataclass(frozen=True)
class Recorder:
    """The recording embedder of a cluster."""

    cluster: Cluster

    def start(self, image: str) -> None:
        """Start the pod and wait until it is ready. The shared embedder must run."""
        labels = {"app.kubernetes.io/name": NAMESPACE}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": NAMESPACE, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 1,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": NAMESPACE,
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["python", "-c", _PROGRAM],
                        "readinessProbe": {"tcpSocket": {"port": _PORT}, "periodSeconds": 1},
                        "securityContext": objects.RESTRICTED,
                    }
                ],
            },
        }
        services = [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"selector": labels, "ports": [{"port": _PORT}]},
            }
            for name in HOSTS
        ]
        self.cluster.apply(objects.namespace(NAMESPACE), pod, *services)
        self.cluster.kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", f"pod/{NAMESPACE}", "--timeout=240s")

    def remove(self) -> None:
        """Delete the pod and its Services."""
        self.cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")

    def texts(self, tenant: str) -> list[Text]:
        """Return the texts that came for a tenant, oldest first."""
        lines = (line.split() for line in self.cluster.kubectl("-n", NAMESPACE, "logs", NAMESPACE).splitlines())
        return [Text(float(line[1]), int(line[3])) for line in lines if line[:1] == ["text"] and line[2] == tenant]


def url(tenant: str, host: str = "kept") -> str:
    """Return the URL of the recording embedder for a tenant."""
    return f"http://{HOSTS[host]}:{_PORT}/{tenant}"
