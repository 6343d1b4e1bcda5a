"""MemoryIndex objects with an external embedder, spread over ten namespaces; their small tables share one database."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from devcluster.demo import objects
from devcluster.errors import DevclusterError
from devcluster.postgres import create_database, database_object
from tests.support.cluster.api import INDEXES, Api, Object
from tests.support.cluster.conditions import is_ready
from tests.support.cluster.filled_tables import fill
from tests.support.cluster.manifests import external_index
from tests.support.cluster.platform import Platform

NAMESPACES = 10
_DATABASE, _SECRET, _KEY = "scale", "dsn", "uri"
_READY_SECONDS = 300.0


@dataclass(frozen=True)
class Member:
    """The namespace and name of one MemoryIndex."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Path of the MemoryIndex at the API server."""
        return f"{INDEXES}/namespaces/{self.namespace}/memoryindexes/{self.name}"


@dataclass
class Population:
    """The MemoryIndex objects that exist so far; `grow` creates more."""

    platform: Platform
    api: Api
    members: list[Member] = field(default_factory=list)
    edits: Iterator[int] = field(default_factory=count)
    _system_id: str = ""

    def prepare(self) -> None:
        """Create the database with pgvector, the namespaces, and a pod in which to fill tables.

        Each namespace has a Secret with the connection string of the database.
        """
        cluster, postgres = self.platform.cluster, self.platform.postgres
        dsn = create_database(cluster, postgres, _DATABASE)
        cluster.apply(database_object(postgres, _DATABASE))
        for number in range(NAMESPACES):
            namespace = _namespace(number)
            postgres.allow(namespace)
            cluster.apply(objects.namespace(namespace), objects.dsn_secret(namespace, _SECRET, _KEY, dsn))
        toolbox = objects.toolbox(
            _namespace(0), image=self.platform.image, secret=_SECRET, key=_KEY, embedder_url="", name=objects.TOOLBOX
        )
        cluster.apply(toolbox)
        cluster.kubectl(
            "-n", _namespace(0), "wait", "--for=condition=Ready", f"pod/{objects.TOOLBOX}", "--timeout=240s"
        )
        where = ("-n", postgres.namespace)
        cluster.kubectl(
            *where, "wait", "--for=jsonpath={.status.applied}=true", f"database/{_DATABASE}", "--timeout=240s"
        )
        self._system_id = self.platform.system_identifier()

    async def grow(self, size: int) -> float:
        """Create objects until there are `size`; return the seconds from the end of suspension until all are Ready.

        New objects are suspended at first, because the claim on a table contains the UID of its MemoryIndex, which is
        unknown until the MemoryIndex exists.
        """
        new = [Member(_namespace(number % NAMESPACES), f"m{number}") for number in range(len(self.members), size)]
        created = [await self.api.create(_collection(member.namespace), self._manifest(member)) for member in new]
        await asyncio.to_thread(self._fill, created)
        began = time.monotonic()
        for member in new:
            await self.api.patch(member.path, {"spec": {"suspend": False}})
        self.members += new
        await self.wait_ready()
        return time.monotonic() - began

    async def wait_ready(self) -> None:
        """Wait until every object is Ready in its present generation."""
        deadline = time.monotonic() + _READY_SECONDS
        while waiting := [item for item in await self.items() if not is_ready(item)]:
            if time.monotonic() > deadline:
                raise DevclusterError(f"{len(waiting)} objects are not Ready", detail=json.dumps(waiting[0]["status"]))
            await asyncio.sleep(1)

    async def items(self) -> list[Object]:
        """Return all MemoryIndex objects of the cluster."""
        return list((await self.api.get(f"{INDEXES}/memoryindexes"))["items"])

    def remove(self) -> None:
        """Delete the namespaces with their objects, and the database."""
        kubectl = self.platform.cluster.kubectl
        kubectl("delete", "namespace", *map(_namespace, range(NAMESPACES)), "--wait", "--timeout=180s")
        kubectl("-n", self.platform.postgres.namespace, "delete", "databases.postgresql.cnpg.io", _DATABASE)
        self.platform.postgres.psql(f"DROP DATABASE {_DATABASE} WITH (FORCE)")
        self.members.clear()

    def _manifest(self, member: Member) -> Object:
        postgres = self.platform.postgres
        database = {
            "cluster": {"name": postgres.name, "namespace": postgres.namespace},
            "name": _DATABASE,
            "table": member.name,
            "credentials": {"secretName": _SECRET, "key": _KEY},
        }
        return external_index(member.namespace, member.name, database, suspend=True)

    def _fill(self, created: list[Object]) -> None:
        entries = [(item["metadata"]["name"], item["metadata"]) for item in created]
        fill(self.platform, _namespace(0), entries, self._system_id)


def _namespace(number: int) -> str:
    return f"scale-{number}"


def _collection(namespace: str) -> str:
    return f"{INDEXES}/namespaces/{namespace}/memoryindexes"
