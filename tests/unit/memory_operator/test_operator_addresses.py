"""Which hosts the operator connects to for the author of a MemoryIndex, and which addresses it never connects to."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.clients.database import DatabaseClient
from memory_operator.clients.destinations import CACHED_SECONDS, Destinations
from memory_operator.clients.kube import KubeError
from memory_operator.clients.resolver import THREADS, THREADS_OF_A_NAMESPACE, NameResolver, UnresolvedError
from memory_operator.reconcile.authorization.addresses import is_forbidden, is_listed, service_addresses, service_of
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.facts import Problem
from memory_operator.settings import Settings
from memory_recall.postgres.connection import DsnText

WAIT_SECONDS = 60.0
FORBIDDEN = [
    "127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "0.1.2.3", "::", "169.254.169.254", "fe80::1", "fe80::1%eth0",  # noqa: S104
    "fec0::1", "224.0.0.1", "ff02::1", "::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "64:ff9b:1::a9fe:a9fe",
    "10.96.0.1", "::ffff:10.96.0.1", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192",
    "2002:a9fe:a9fe::1", "2001::1", "::ffff:0:169.254.169.254", "::a9fe:a9fe",
    "::ffff:127.0.0.1", "::ffff:7f00:1", "64:ff9b::127.0.0.1", "febf::1", "::ffff:0.0.0.0", "::ffff:100.100.100.200",
]  # fmt: skip


@pytest.mark.promise("services-and-listed-hosts")
@pytest.mark.finding("security S10")
@pytest.mark.parametrize("address", FORBIDDEN)
def test_addresses_of_the_pod_its_link_and_the_api_servers_service_are_never_connected_to(
    address: str,
) -> None:
    assert is_forbidden(address, excluded={"10.96.0.1"})


@pytest.mark.finding("security S10")
@pytest.mark.parametrize("address", ["192.0.2.1", "::ffff:192.0.2.1"])
def test_the_address_of_the_operators_node_is_one_that_it_does_not_connect_to(address: str) -> None:
    """It comes from the downward API, perhaps as IPv6."""
    assert is_forbidden("64:ff9b::192.0.2.1", excluded=Settings(node=address).node_addresses)
    assert Settings().node_addresses == frozenset()
    with pytest.raises(ValueError, match="must be an IP address"):
        Settings(node="node-1")


@pytest.mark.parametrize("address", ["10.96.0.2", "192.168.1.7", "93.184.216.34", "2001:db8::1", "fd00::7"])
def test_other_addresses_of_a_listed_host_are_connected_to(address: str) -> None:
    assert not is_forbidden(address, excluded={"10.96.0.1"})


@pytest.mark.parametrize(
    ("host", "service"),
    [
        ("pg-rw", ("team", "pg-rw")),
        ("pg-rw.dbaas", ("dbaas", "pg-rw")),
        ("pg-rw.dbaas.svc", ("dbaas", "pg-rw")),
        ("pg-rw.dbaas.svc.cluster.local", ("dbaas", "pg-rw")),
        ("pg-rw.dbaas.svc.cluster.local.", ("dbaas", "pg-rw")),
        ("example.com", ("com", "example")),
        ("pod-0.pg.dbaas.svc", None),
        ("db.example.com", None),
        ("10.0.0.7", None),
        ("2130706433", ("team", "2130706433")),
        ("fd00::1", None),
        ("-x.dbaas.svc", None),
        (".svc", None),
    ],
)
def test_a_host_can_be_a_service_as_a_pod_of_the_namespace_would_find_it(
    host: str, service: tuple[str, str] | None
) -> None:
    assert service_of(host, "team") == service


@pytest.mark.parametrize(
    ("host", "listed", "found"),
    [
        ("db.example.com", ["db.example.com"], True),
        ("db.example.com", ["DB.Example.com"], True),
        ("db.example.com", [".example.com"], True),
        ("example.com", [".example.com"], False),
        ("evil-example.com", [".example.com", "example.com"], False),
        ("10.0.0.7", ["10.0.0.7"], True),
        ("10.0.0.7", [".0.0.7"], False),
        ("fd00::7", ["FD00:0:0::0007"], True),
        ("fd00:0::7", ["fd00::7"], True),
        ("::ffff:10.0.0.7", ["10.0.0.7"], True),
        ("fd00::7", ["fd00::70"], False),
    ],
)
def test_a_list_names_hosts_or_all_names_below_one(host: str, listed: list[str], found: bool) -> None:
    assert is_listed(host, listed) is found


def service(**spec: Any) -> dict[str, Any]:
    whole = {"type": "ClusterIP", "clusterIP": "10.1.2.3", "clusterIPs": ["10.1.2.3"], "selector": {"app": "pg"}} | spec
    return {"metadata": {"namespace": "dbaas", "name": "pg-rw"}, "spec": whole}


@pytest.mark.promise("services-and-listed-hosts")
@pytest.mark.finding("security S6")
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"type": "ExternalName", "externalName": "evil.example", "clusterIP": "", "clusterIPs": None}, "outside"),
        ({"selector": None}, "no selector"),
        ({"selector": {}}, "no selector"),
        ({"clusterIP": "None", "clusterIPs": ["None"]}, "no address"),
        ({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"]}, "does not connect to"),
    ],
)
def test_a_service_that_can_be_any_server_is_refused(spec: dict[str, Any], said: str) -> None:
    found = service_addresses(service(**spec), "embedder", excluded={"10.96.0.1"})
    assert isinstance(found, Problem)
    assert found.reason is Reason.NOT_PERMITTED
    assert said in found.message
    assert "permitted.externalHosts" in found.remedy


class Names:
    """Name servers: one name blocks a thread until the test lets go, every other one has the address 10.9.9.9."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.blocked = threading.Semaphore(0)  # released by each thread that waits
        self.asked: list[str] = []

    def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        if "slow" in host:
            self.blocked.release()
            self.go_on.wait(WAIT_SECONDS)
            raise OSError
        return ["127.0.0.1"] if "loop" in host else ["10.9.9.9", "127.0.0.1"]


@pytest.fixture
def names() -> Iterator[Names]:
    found = Names()
    yield found
    found.go_on.set()


class Cluster:
    """The Services of a cluster, a clock, and the destinations that they make."""

    def __init__(self, names: Names, *services: dict[str, Any]) -> None:
        self.services = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in services}
        self.reads: list[tuple[str, str]] = []
        self.refusal: KubeError | None = None
        self.now = 0.0
        permitted = Permitted(
            external_hosts=("embed.example", "169.254.1.1"), database_hosts=(".db.example", "10.0.0.7")
        )
        resolver = NameResolver(names, seconds=WAIT_SECONDS)
        self.destinations = Destinations(self.read, resolver, permitted, frozenset({"10.96.0.1"}), lambda: self.now)

    async def read(self, namespace: str, name: str) -> dict[str, Any] | None:
        self.reads.append((namespace, name))
        if self.refusal:
            raise self.refusal
        return self.services.get((namespace, name))


async def test_a_service_is_read_and_not_resolved(names: Names) -> None:
    cluster = Cluster(names, service())
    for host in ("pg-rw.dbaas", "PG-RW.dbaas.svc.cluster.local", "pg-rw.dbaas.svc"):
        assert await cluster.destinations.database("team", host) == ("10.1.2.3",)
    assert cluster.reads == [("dbaas", "pg-rw")], "what was read is used again"
    cluster.now += CACHED_SECONDS
    await cluster.destinations.database("team", "pg-rw.dbaas")
    assert len(cluster.reads) == 2
    assert names.asked == []


@pytest.mark.promise("services-and-listed-hosts")
@pytest.mark.finding("security S6")
@pytest.mark.finding("security S11")
@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", Reason.NOT_PERMITTED),
        ("169.254.169.254", Reason.NOT_PERMITTED),
        ("10.0.0.8", Reason.NOT_PERMITTED),
        ("fd00::1", Reason.NOT_PERMITTED),
        ("localhost", Reason.DATABASE_UNREACHABLE),
        ("evil.example.com", Reason.NOT_PERMITTED),
        ("loop.db.example", Reason.NOT_PERMITTED),
        ("nobody.dbaas.svc", Reason.DATABASE_UNREACHABLE),
        ("/run/postgresql", Reason.NOT_PERMITTED),
    ],
)
async def test_a_connection_uri_leads_nowhere_but_to_services_and_listed_hosts(
    host: str, reason: Reason, names: Names
) -> None:
    found = await Cluster(names, service()).destinations.database("team", host)
    assert isinstance(found, Problem)
    assert found.reason is reason
    assert names.asked in ([], ["loop.db.example"])


async def test_listed_hosts_are_resolved_and_listed_addresses_taken_as_they_are(names: Names) -> None:
    destinations = Cluster(names).destinations
    assert await destinations.database("team", "one.db.example") == ("10.9.9.9",), "without what is never connected to"
    assert await destinations.database("team", "10.0.0.7") == ("10.0.0.7",)
    assert await destinations.embedder("team", "embed.example") == ("10.9.9.9",)
    assert await destinations.embedder("team", "169.254.1.1") == ("169.254.1.1",)
    assert isinstance(await destinations.embedder("team", "one.db.example"), Problem), "listed for databases alone"


async def test_a_service_that_may_not_be_read_is_named_with_the_value_that_grants_it(names: Names) -> None:
    cluster = Cluster(names)
    cluster.refusal = KubeError("reading", 403, "forbidden", refused=True)
    found = await cluster.destinations.database("team", "pg-rw.dbaas.svc")
    assert isinstance(found, Problem)
    assert "databaseNamespaces" in found.remedy


@pytest.mark.promise("names-delay-nobody-else")
@pytest.mark.finding("security S3")
async def test_names_that_nobody_answers_for_delay_no_other_namespace(names: Names) -> None:
    """Each of them keeps a thread, also after its caller has given up."""
    resolver = NameResolver(names, seconds=WAIT_SECONDS)
    waiting = [asyncio.create_task(resolver.addresses("hostile", f"slow{n}")) for n in range(50)]
    for _ in range(THREADS_OF_A_NAMESPACE):
        assert await asyncio.to_thread(names.blocked.acquire, timeout=WAIT_SECONDS)
    for task in waiting:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), WAIT_SECONDS)
    assert await asyncio.wait_for(resolver.addresses("team", "fast"), WAIT_SECONDS) == ("10.9.9.9", "127.0.0.1")
    assert len(names.asked) == THREADS_OF_A_NAMESPACE + 1
    resolver.close()


@pytest.mark.promise("names-delay-nobody-else")
@pytest.mark.finding("security S3")
async def test_silent_names_of_many_namespaces_together_do_not_delay_a_name_that_was_answered(names: Names) -> None:
    """Whoever may create namespaces takes with them every thread for names of which nothing is known."""
    resolver = NameResolver(names, seconds=WAIT_SECONDS)
    assert await resolver.addresses("team", "fast")
    waiting = [asyncio.create_task(resolver.addresses(f"hostile-{n}", f"slow{n}")) for n in range(THREADS + 9)]
    for _ in range(THREADS):
        assert await asyncio.to_thread(names.blocked.acquire, timeout=WAIT_SECONDS)
    for _ in range(2):
        assert await asyncio.wait_for(resolver.addresses("team", "fast"), WAIT_SECONDS / 10)
    for task in waiting:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), WAIT_SECONDS)
    resolver.close()


@pytest.mark.promise("names-delay-nobody-else")
async def test_a_name_that_was_answered_keeps_its_threads_until_a_lookup_of_it_fails(names: Names) -> None:
    """Two objects may ask for it at a time, and one of them may give up."""
    resolver = NameResolver(names, seconds=WAIT_SECONDS)
    assert await resolver.addresses("team", "fast")
    waiting = [asyncio.create_task(resolver.addresses(f"hostile-{n}", f"slow{n}")) for n in range(THREADS)]
    for _ in range(THREADS):
        assert await asyncio.to_thread(names.blocked.acquire, timeout=WAIT_SECONDS)
    given_up = asyncio.create_task(resolver.addresses("team", "fast"))
    await asyncio.sleep(0)
    given_up.cancel()
    async with asyncio.timeout(WAIT_SECONDS / 10):
        found = await asyncio.gather(*(resolver.addresses("team", "fast") for _ in range(2)))
    assert all(found)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    resolver.close()


@pytest.mark.finding("security S3")
async def test_waiting_for_a_thread_counts_as_resolving(names: Names) -> None:
    resolver = NameResolver(names, seconds=0.2)
    for host in ("slow1", "slow2", "fast"):
        with pytest.raises(UnresolvedError):
            await asyncio.wait_for(resolver.addresses("hostile", host), WAIT_SECONDS)
    names.go_on.set()
    async with asyncio.timeout(WAIT_SECONDS):
        while not await resolved(resolver):
            pass
    resolver.close()


async def resolved(resolver: NameResolver) -> bool:
    try:
        return bool(await resolver.addresses("hostile", "fast"))
    except UnresolvedError:
        return False


@pytest.mark.finding("security S11")
@pytest.mark.usefixtures("complaints")
async def test_closed_silent_and_foreign_ports_are_told_in_the_same_words() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")
        writer.close()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def here(_namespace: str, _host: str) -> tuple[str, ...]:
        return ("127.0.0.1",)

    servers = [await asyncio.start_server(handle, "127.0.0.1", 0) for handle in (answer, hang_up, hang_up)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    servers[2].close()
    await servers[2].wait_closed()
    said = set()
    for port in ports:
        for mode in ("disable", "prefer", "require"):
            dsn = DsnText(f"postgresql://u:p@pg:{port}/app?sslmode={mode}")
            found = (await DatabaseClient(here).inspect(dsn, "memories", "team")).found
            assert isinstance(found, Problem)
            said.add((found.reason, found.message, found.remedy))
    assert len(said) == 1
    for server in servers[:2]:
        server.close()
