"""The hostile author of MemoryIndex objects, and snapshots of what belongs to the victim.

The author has one namespace and, in it, a server that answers badly. A snapshot holds everything of the victim that a
hostile object could change. The snapshots before and after the creation of a hostile object are compared.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from devcluster.cluster import Cluster
from devcluster.demo import follow, objects
from devcluster.install import OPERATOR_NAMESPACE
from tests.support.cluster.api import INDEXES
from tests.support.cluster.tenants import DATABASES, KEY, SECRET, Tenant, manifest
from tests.support.waiting import eventually

SERVER = "hostile"
SERVER_PORT = 8080
ENDLESS, BOMB, RECORDING = "endless", "gzip", "recording"
_OWNERS = (
    "SELECT datname || ' ' || pg_get_userbyid(datdba) FROM pg_database WHERE datname IN ({names}) ORDER BY datname"
)
_CONTENTS = """
SELECT json_build_object(
    'rows', (SELECT count(*) FROM memories), 'vectors', (SELECT count(embedding) FROM memories),
    'columns', (SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute
                 WHERE attrelid = 'memories'::regclass AND attnum > 0 AND NOT attisdropped),
    'relations', (SELECT string_agg(oid::regclass::text, ' ' ORDER BY oid) FROM pg_class
                   WHERE relnamespace = 'public'::regnamespace),
    'claim', obj_description('memory_index_state'::regclass))
"""
_PROGRAM = f"""
import gzip, http.server
packer, spaces = gzip.GzipFile, b" " * 1_000_000
with open("/tmp/bomb", "wb") as file, gzip.GzipFile(fileobj=file, mode="wb") as packed:
    packed.write(b'{{"data": [')
    for _ in range(300):
        packed.write(spaces)
    packed.write(b"]}}")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        key = "with a key" if self.headers.get("Authorization") else "without a key"
        print(self.path, key, flush=True)
        self.send_response(200)
        if self.path.startswith("/{BOMB}"):
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if self.path.startswith("/{BOMB}"):
            self.wfile.write(open("/tmp/bomb", "rb").read())
        while self.path.startswith("/{ENDLESS}"):
            self.wfile.write(spaces)
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer(("", {SERVER_PORT}), Handler).serve_forever()
"""


def snapshot(victim: Tenant, *others: str) -> dict[str, Any]:
    """Return everything that a hostile object could change of the victim and of the `others`, which are databases.

    That is the owners of these databases, the rows and schema of the victim's database, the Database objects for these
    databases beside their Postgres cluster, and the objects in the victim's namespace. Databases of anybody else are
    left out, because they may change for other reasons meanwhile.
    """
    postgres, named = victim.postgres, (victim.database, *others)
    return {
        "owners": postgres.psql(_OWNERS.format(names=", ".join(f"'{name}'" for name in named))),
        "contents": victim.sql(" ".join(_CONTENTS.split())),
        "databases": {
            name: version
            for name, version in versions(victim.cluster, postgres.namespace, DATABASES).items()
            if (version[2] or {}).get("name") in named
        },
        "children": versions(victim.cluster, victim.name, "deployments,services,networkpolicies,secrets"),
    }


def versions(cluster: Cluster, namespace: str, kinds: str) -> dict[str, Any]:
    """Return what identifies the content of each object: its UID, owners, spec and data, without its status.

    The keys of the result are KIND/NAME.
    """
    items = cluster.kubectl_json("-n", namespace, "get", kinds)["items"]
    return {
        f"{item['kind']}/{item['metadata']['name']}": [
            item["metadata"]["uid"],
            item["metadata"].get("ownerReferences"),
            item.get("spec"),
            item.get("data"),
        ]
        for item in items
    }


@dataclass(frozen=True)
class Author:
    """A hostile author, who may create MemoryIndex objects in `namespace` and nothing in any other namespace."""

    victim: Tenant
    namespace: str

    @property
    def cluster(self) -> Cluster:
        """The Kubernetes cluster in which both the author and the victim have a namespace."""
        return self.victim.cluster

    def create(self) -> None:
        """Create the author's namespace."""
        self.cluster.apply(objects.namespace(self.namespace))

    def remove(self) -> None:
        """Delete the author's MemoryIndex objects with deletion policy Retain, and then the author's namespace."""
        for name in self.kubectl("get", "memoryindexes", "-o", "name").split():
            self.kubectl("patch", name, "--type=merge", "--patch", '{"spec": {"deletionPolicy": "Retain"}}')
        self.kubectl("delete", "memoryindexes", "--all", "--wait", "--timeout=240s")
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the author's namespace."""
        return self.cluster.kubectl("-n", self.namespace, *arguments)

    def write_dsn(self, dsn: str) -> None:
        """Write a connection string to the author's Secret, which has the label that permits this use."""
        self.cluster.apply(objects.dsn_secret(self.namespace, SECRET, KEY, dsn))

    def apply_index(self, name: str = "mi", **changes: Any) -> None:
        """Apply a MemoryIndex that names the victim's database; for `changes` see `Tenant.apply_index`."""
        body = copy.deepcopy(manifest(self.victim, changes))
        body["metadata"] = {"name": name, "namespace": self.namespace}
        self.cluster.apply(body)

    def index(self, name: str = "mi") -> Mapping[str, Any]:
        """Return the author's MemoryIndex of this name."""
        return dict(self.cluster.read(f"{INDEXES}/namespaces/{self.namespace}/memoryindexes/{name}"))

    def wait_refused(self, reason: str, *, kind: str = "Ready", name: str = "mi") -> str:
        """Wait until the condition `kind` is False with the given reason, and return its message."""
        seen = eventually(
            lambda: follow.view(self.index(name)).condition(kind),
            lambda found: (found.status, found.reason) == ("False", reason),
            what=f"{kind}=False {reason}",
        )
        return seen.message

    def start_server(self, image: str) -> None:
        """Start a pod with an HTTP server that answers badly.

        Depending on the path, the answer unpacks to 300 MB, never ends, or is empty.
        """
        pod = objects.toolbox(self.namespace, image=image, secret=SECRET, key=KEY, embedder_url="", name=SERVER)
        container = pod["spec"]["containers"][0]
        container["command"] = ["python", "-c", _PROGRAM]
        container["readinessProbe"] = {"tcpSocket": {"port": SERVER_PORT}, "periodSeconds": 1}
        selector = {"app.kubernetes.io/name": SERVER}
        pod["metadata"]["labels"] = selector
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVER, "namespace": self.namespace},
            "spec": {"selector": selector, "ports": [{"port": SERVER_PORT}]},
        }
        self.cluster.apply(pod, service)
        self.kubectl("wait", "--for=condition=Ready", f"pod/{SERVER}", "--timeout=240s")

    def server_url(self, path: str) -> str:
        """Return the URL of the author's server with this path, which selects how the server answers."""
        return f"http://{SERVER}.{self.namespace}.svc:{SERVER_PORT}/{path}"

    def requests(self) -> list[str]:
        """Return for each request to the author's server its path and whether it carried a key."""
        return self.kubectl("logs", SERVER).splitlines()


def operator_starts(cluster: Cluster) -> dict[str, int]:
    """Return by the UID of each of the operator's pods how often its containers have been restarted."""
    each = '{.metadata.uid}{range .status.containerStatuses[*]} {.restartCount}{end}{"\\n"}'
    path = f"jsonpath={{range .items[*]}}{each}{{end}}"
    pods = cluster.kubectl("-n", OPERATOR_NAMESPACE, "get", "pods", "-o", path).splitlines()
    assert pods, "the operator has no pod"
    return {uid: sum(map(int, restarts)) for uid, *restarts in map(str.split, pods)}


def starts_between(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Return how often the operator was started between two readings of `operator_starts`; a new pod is one start."""
    return sum(restarts - before.get(uid, -1) for uid, restarts in after.items())


def serve_others(victim: Tenant) -> None:
    """Check that the operator still reconciles the victim's MemoryIndex."""
    victim.apply_index(suspend=True)
    victim.wait_condition("Ready", "Suspended", status="True")
    victim.apply_index(suspend=False)
    victim.wait_condition("Ready", "Ready", status="True")
