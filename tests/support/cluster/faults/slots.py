"""Defines a slot: a namespace, a Postgres cluster, an operator process for it, and a proxy to the API server.

A MemoryIndex is created and deleted in a slot many times, never twice at the same time. Slots work side by side, but
each has its own proxy. Therefore each call that passes a proxy belongs to one creation and deletion.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.support.cluster.api import INDEXES, Api, ApiError, Object
from tests.support.cluster.faults.points import Recorder
from tests.support.cluster.faults.proxy import FaultProxy
from tests.support.cluster.manifests import EMBEDDER_HOST, external_index
from tests.support.cluster.tenants import TABLE

NAME, SECRET, KEY, DATABASE, ROWS = "life", "dsn", "uri", "app", 10
_START_SECONDS = 30.0
_RESTART_SECONDS = 1.0
_FIRST_PORT = 20000
_RESET = f"""
DROP EXTENSION IF EXISTS vector CASCADE;
DROP OWNED BY {DATABASE} CASCADE;
GRANT ALL ON SCHEMA public TO {DATABASE};
SET ROLE {DATABASE};
{TABLE}
INSERT INTO memories (content) SELECT 'note ' || n FROM generate_series(1, {ROWS}) AS n;
"""
COLUMNS = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'memories'::regclass AND attname = 'embedding';"


@dataclass(frozen=True)
class SlotPlace:
    """Where a slot is: its number, its namespace, and the namespace and name of its Postgres cluster."""

    number: int
    namespace: str
    database_namespace: str
    cluster: str


@dataclass(frozen=True)
class Programs:
    """The path of kubectl, and the images with which the operator starts workers and embedders."""

    kubectl: str
    operator_image: str
    embedder_image: str


class Slot:
    """Runs a slot's operator behind the slot's proxy, and creates, reads and removes the slot's only MemoryIndex."""

    def __init__(
        self, place: SlotPlace, programs: Programs, api: Api, session: aiohttp.ClientSession, logs: Path
    ) -> None:
        self.place = place
        self.api = api
        self._programs = programs
        self._log = logs / f"operator-{place.number}.log"
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self.proxy = FaultProxy(session, (place.namespace, place.database_namespace), self._kill)

    @property
    def path(self) -> str:
        """Path of the slot's MemoryIndex at the API server."""
        return f"{self._collection}/{NAME}"

    @property
    def _collection(self) -> str:
        return f"{INDEXES}/namespaces/{self.place.namespace}/memoryindexes"

    @property
    def runs_operator(self) -> bool:
        """Whether the operator has been started; also true while it restarts after its process has ended."""
        return self._supervisor is not None

    async def restart_operator(self) -> None:
        """Restart the operator, and wait until it watches MemoryIndex objects, for about 30 seconds at most."""
        await self.stop_operator()
        self._supervisor = asyncio.create_task(self._supervise())
        for _ in range(round(_START_SECONDS / 0.2)):
            await asyncio.sleep(0.2)
            if any(
                call.what.startswith("WATCH") and "memoryindexes" in call.what for call in self.proxy.recorder.calls
            ):
                break
        await asyncio.sleep(1)

    async def stop_operator(self) -> None:
        """Kill the operator, if it runs, and wait until its process has ended; it does not start again."""
        if self._supervisor:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        await self._kill()
        if self._process:
            await self._process.wait()

    async def create(self, **spec: Any) -> Object:
        """Create the slot's MemoryIndex with the given fields of its spec, and return it."""
        database = {
            "cluster": {"name": self.place.cluster, "namespace": self.place.database_namespace},
            "name": DATABASE,
            "credentials": {"secretName": SECRET, "key": KEY},
        }
        return await self.api.create(self._collection, external_index(self.place.namespace, NAME, database, **spec))

    async def read(self) -> Object | None:
        """Return the slot's MemoryIndex, or None if it does not exist."""
        try:
            return await self.api.get(self.path)
        except ApiError as error:
            if error.status != 404:
                raise
        return None

    async def database_objects(self) -> list[str]:
        """Return the names of the Database objects that the operator has made for this slot."""
        return [item["metadata"]["name"] for item in await self._database_items()]

    async def kept_database_objects(self) -> list[str]:
        """Return the names of those Database objects that nobody has begun to delete."""
        items = await self._database_items()
        return [item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"]]

    async def _database_items(self) -> list[Object]:
        labels = f"labelSelector=memory-index.dev%2Fnamespace%3D{self.place.namespace}"
        return list((await self.api.get(f"{self._databases}?{labels}"))["items"])

    async def has_left_behind_event(self, uid: str) -> bool:
        """Return whether an Event names what the deletion of the MemoryIndex with this uid has left behind."""
        selector = f"fieldSelector=reason%3DLeftBehind%2CinvolvedObject.uid%3D{uid}"
        return bool((await self.api.get(f"/api/v1/namespaces/{self.place.namespace}/events?{selector}"))["items"])

    @property
    def _databases(self) -> str:
        return f"/apis/postgresql.cnpg.io/v1/namespaces/{self.place.database_namespace}/databases"

    async def reset(self) -> None:
        """Remove the slot's MemoryIndex, if it is left, and set the database back to its initial state."""
        if await self.read():
            await self.api.delete(self.path)
            await self.api.patch(self.path, {"metadata": {"finalizers": None}})
        async with asyncio.timeout(_START_SECONDS):
            while left := await self.database_objects():
                for name in left:
                    await self.api.delete(f"{self._databases}/{name}")
                await asyncio.sleep(1)
        await self.sql(_RESET)

    async def sql(self, statements: str) -> str:
        """Run SQL as superuser in the slot's database and return the rows as unaligned text."""
        psql = ("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", f"--dbname={DATABASE}")
        pod = ("-n", self.place.database_namespace, "exec", "-i", f"{self.place.cluster}-1", "-c", "postgres", "--")
        process = await asyncio.create_subprocess_exec(
            self._programs.kubectl, *pod, *psql,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, problem = await process.communicate(statements.encode())
        if process.returncode:
            raise RuntimeError(f"SQL in {self.place.cluster} failed: {problem.decode()[-500:]}")
        return output.decode().strip()

    async def _supervise(self) -> None:
        """Start the operator, and start it again a moment after its process has ended, as its Deployment would."""
        kubeconfig = self._log.with_suffix(".kubeconfig")
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(self.proxy.port)), encoding="utf-8")
        port = _FIRST_PORT + self.place.number
        module = "tests.support.cluster.faults.operator_process"
        while True:
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", module, str(port),
                    env=self._environment(str(kubeconfig)), stdout=log, stderr=log,
                )  # fmt: skip
            await self._process.wait()
            await asyncio.sleep(_RESTART_SECONDS)

    def _environment(self, kubeconfig: str) -> Mapping[str, str]:
        return {
            **os.environ,
            "KUBECONFIG": kubeconfig,
            "MEMORY_OPERATOR_NAMESPACES": self.place.namespace,
            "MEMORY_OPERATOR_IMAGES_OPERATOR": self._programs.operator_image,
            "MEMORY_OPERATOR_IMAGES_EMBEDDER": self._programs.embedder_image,
            "MEMORY_OPERATOR_PERMITTED": json.dumps({"external_hosts": [EMBEDDER_HOST]}),
        }

    async def _kill(self) -> None:
        """Kill the operator's process, if it runs."""
        if self._process and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)

    def record(self, recorder: Recorder) -> None:
        """Record the operator's calls with `recorder` from now on."""
        self.proxy.recorder = recorder


def _kubeconfig(port: int) -> Object:
    """Return a kubeconfig that names the proxy at `port` as the API server; the proxy needs no credentials."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "nobody", "user": {"token": "none"}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
        "current-context": "proxy",
    }
