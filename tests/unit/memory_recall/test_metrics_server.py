"""The metrics of workers and operator: what Prometheus gets, and that idle connections do not keep it out."""

import math
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from memory_recall.errors import (
    DatabaseFull,
    DatabaseUnreachable,
    EmbedderBusy,
    EmbedderUnauthorized,
    EmbedderUnavailable,
)
from memory_recall.indexing.progress import LogProgress, Tally, WorkerMetrics
from memory_recall.metrics_server import MetricsServer, ServerLimits
from memory_recall.retrying import Awaited, Backoff, caused_by, retry_outage
from memory_recall.swap.standby import NextModelProgress

HOST = "127.0.0.1"
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
)  # what Prometheus 3 sends, shortened
Serve = Callable[..., MetricsServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def make(registry: CollectorRegistry | None = None, **limits: float) -> MetricsServer:
            if registry is None:
                registry = CollectorRegistry()
                Gauge("memory_test", "A test.", registry=registry).set(7)
            server = MetricsServer(registry, 0, host=HOST, limits=ServerLimits(**limits))  # type: ignore[arg-type]
            stack.callback(server.close)
            return server

        yield make


def connected(server: MetricsServer, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection((HOST, server.port), timeout=30)
    connection.sendall(sent)
    return connection


def scraped(server: MetricsServer) -> str:
    connection = HTTPConnection(HOST, server.port, timeout=30)
    connection.request("GET", "/metrics")
    answer = connection.getresponse().read().decode()
    connection.close()
    return answer


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (PROMETHEUS, "application/openmetrics-text; version=1.0.0"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4"),
        ("", "text/plain; version=0.0.4"),
        ("text/plain;version=much", "text/plain; version=0.0.4"),
    ],
)
def test_prometheus_scrapes_again_and_again_on_one_connection(serve: Serve, accept: str, kind: str) -> None:
    connection = HTTPConnection(HOST, serve().port, timeout=30)
    for _ in range(3):
        connection.request("GET", "/metrics", headers={"Accept": accept, "Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        assert (answer.status, answer.will_close) == (200, False)
        assert answer.headers["content-type"].startswith(kind)
        families = list(text_string_to_metric_families(answer.read().decode()))
        assert [(family.name, family.samples[0].value) for family in families] == [("memory_test", 7.0)]
    connection.close()


@pytest.mark.parametrize(
    ("method", "path", "status"), [("HEAD", "/metrics", 200), ("GET", "/", 404), ("POST", "/metrics", 405)]
)
def test_other_requests_are_told_what_is_here(serve: Serve, method: str, path: str, status: int) -> None:
    connection = HTTPConnection(HOST, serve().port, timeout=30)
    connection.request(method, path, body=b"x" if method == "POST" else None)
    answer = connection.getresponse()
    assert answer.status == status
    assert answer.will_close is (method == "POST")  # its body is not read
    connection.close()


@pytest.mark.parametrize("sent", [b"no request\r\n\r\n", b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 70_000])
def test_what_is_no_request_ends_its_connection(serve: Serve, sent: bytes) -> None:
    server = serve()
    with connected(server) as connection:
        try:
            connection.sendall(sent)
            assert connection.recv(1) == b""
        except ConnectionError:
            pass  # a reset says the same
    assert "memory_test 7.0" in scraped(server)


@pytest.mark.promise("metrics-connections-bounded")
@pytest.mark.finding("security L11")
@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\n"])
def test_connections_that_send_nothing_take_no_threads_and_keep_no_scrape_out(serve: Serve, sent: bytes) -> None:
    """They have a number, and a new one takes the place of the one that has waited longest."""
    server = serve()
    threads = threading.active_count()
    with ExitStack() as held:
        connections = [held.enter_context(connected(server, sent)) for _ in range(64)]
        assert "memory_test 7.0" in scraped(server)
        assert threading.active_count() == threads
        connections[0].settimeout(30)
        assert closed(connections[0])


def closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.promise("metrics-connections-bounded")
@pytest.mark.finding("security L11")
@pytest.mark.parametrize(
    ("limit", "sent"),
    [({"idle_seconds": 0.05}, b""), ({"head_seconds": 0.05}, b"GET /metrics HTTP/1.1\r\nHost: x")],
    ids=["idle", "half a head"],
)
def test_a_connection_ends_if_it_waits_for_its_client_too_long(
    serve: Serve, limit: dict[str, float], sent: bytes
) -> None:
    with connected(serve(**limit), sent) as connection:
        assert closed(connection)


@pytest.mark.finding("security L11")
def test_a_connection_ends_if_its_answer_is_not_read(serve: Serve) -> None:
    """More of it than the system keeps for both sides."""
    registry = CollectorRegistry()
    Gauge("memory_test", "x" * (32 << 20), registry=registry)
    with connected(serve(registry, answer_seconds=0.05), b"GET /metrics HTTP/1.1\r\n\r\n") as connection:
        received = 0
        while True:
            try:
                part = connection.recv(1 << 20)
            except ConnectionError:
                break
            if not part:
                break
            received += len(part)
            threading.Event().wait(0.1)  # a reader that is always too slow
    assert received < 32 << 20


def test_a_port_that_is_taken_is_an_error(serve: Serve) -> None:
    with pytest.raises(OSError, match="already in use"):
        MetricsServer(CollectorRegistry(), serve().port, host=HOST)


def test_a_worker_serves_its_metrics_until_its_process_ends() -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
    WorkerMetrics().serve(port)
    connection = HTTPConnection(HOST, port, timeout=30)
    connection.request("GET", "/metrics")
    assert b"memory_worker_rows_total" in connection.getresponse().read()
    connection.close()


def embedded(metrics: WorkerMetrics) -> float | None:
    return metrics.registry.get_sample_value("memory_worker_rows_total", {"result": "embedded"})


def test_a_worker_that_starts_again_adds_to_what_it_counted_before() -> None:
    """After an outage a worker begins a new tally; a counter of Prometheus may never fall."""
    metrics = WorkerMetrics()
    first, second = Tally(embedded=30), Tally(embedded=4)
    metrics.observe(first)
    first.embedded = 32
    metrics.observe(first)
    metrics.observe(second)
    second.embedded = 50
    metrics.observe(second)
    assert embedded(metrics) == 32 + 50


def test_two_pipelines_that_take_turns_are_counted_once_each() -> None:
    """During a swap a worker fills the next model's column beside the present one's."""
    metrics = WorkerMetrics()
    present, following = Tally(embedded=3), Tally(embedded=50_000)
    for _ in range(3):
        metrics.observe(present)
        metrics.observe(following)
        present.embedded += 1
    assert embedded(metrics) == 5 + 50_000


def test_only_a_worker_that_has_counted_its_rows_says_how_many_are_pending() -> None:
    """The sync worker, which does not, would say that none are."""
    metrics = WorkerMetrics()
    progress = LogProgress(metrics, worker="backfill")
    progress.advanced(Tally(embedded=3))
    assert metrics.registry.get_sample_value("memory_worker_pending_rows", {"worker": "backfill"}) is None
    progress.started(10)
    progress.advanced(Tally(embedded=3))
    assert metrics.registry.get_sample_value("memory_worker_pending_rows", {"worker": "backfill"}) == 7


def test_an_outage_of_the_next_models_embedder_does_not_end_that_of_the_active_ones() -> None:
    """During a swap the key for recalls may be refused while the next model's embedder comes and goes."""
    metrics = WorkerMetrics()
    progress = LogProgress(metrics, worker="sync")
    progress.outage_began(Awaited.EMBEDDER, EmbedderUnauthorized("It refused the key."))
    following = NextModelProgress(progress)
    following.outage_began(Awaited.EMBEDDER, EmbedderUnavailable("It does not answer."))
    following.outage_ended(Awaited.EMBEDDER, 3.0)
    assert metrics.registry.get_sample_value("memory_worker_unauthorized") == 1
    assert metrics.registry.get_sample_value("memory_worker_outages_total", {"what": Awaited.NEXT_MODEL}) == 1


def test_every_outage_has_a_series_before_it_happens() -> None:
    """Prometheus counts the difference of two values, so the first increment of a new series would not be noticed."""
    registry = WorkerMetrics().registry
    series = [registry.get_sample_value("memory_worker_outages_total", {"what": what}) for what in Awaited]
    assert series == [0] * len(Awaited)


def test_an_outage_for_want_of_room_is_counted_as_that_of_the_disk() -> None:
    metrics = WorkerMetrics()
    metrics.outage_began(Awaited.DATABASE, DatabaseFull("It has no room left."))
    counted = {
        what: metrics.registry.get_sample_value("memory_worker_outages_total", {"what": what})
        for what in (Awaited.DATABASE, Awaited.DISK)
    }
    assert counted == {Awaited.DATABASE: 0, Awaited.DISK: 1}


@pytest.mark.parametrize(("error", "waits"), [(EmbedderUnavailable, 1), (EmbedderBusy, 0)])
async def test_a_worker_says_that_it_waits_for_as_long_as_attempts_fail_unless_the_embedder_is_only_busy(
    monkeypatch: pytest.MonkeyPatch, error: type[EmbedderUnavailable], waits: int
) -> None:
    """An attempt takes two minutes here, the outage lasts an hour, and its reason is always the same.

    The attempt that succeeds is work of four minutes.
    """
    metrics, now, seen = WorkerMetrics(), 0.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def waiting() -> float | None:
        return metrics.registry.get_sample_value("memory_worker_waiting", {"what": Awaited.EMBEDDER})

    async def attempt() -> None:
        nonlocal now
        seen.append(waiting())
        now += 120.0
        seen.append(waiting())
        if len(seen) <= 60:
            raise error("It does not answer.")
        now += 120.0
        seen.append(waiting())

    at_once = Backoff(first=0, longest=0, jitter=0)
    progress, kinds = LogProgress(metrics, worker="sync"), caused_by(EmbedderUnavailable)
    await retry_outage(attempt, Awaited.EMBEDDER, progress, on=kinds, give_up_after=None, backoff=at_once)
    assert set(seen[2:-1]) == {waits}, "after the first failed attempt"
    assert (seen[-1], waiting()) == (0, 0)


async def test_a_worker_says_that_it_waits_for_room_until_it_has_stored_something() -> None:
    """Meanwhile another of its sessions waits for the database, and no longer."""
    metrics = WorkerMetrics()
    seen: list[list[float | None]] = []
    progress = LogProgress(metrics, worker="backfill")

    def waiting() -> list[float | None]:
        kinds = (Awaited.DISK, Awaited.DATABASE)
        return [metrics.registry.get_sample_value("memory_worker_waiting", {"what": kind}) for kind in kinds]

    async def wait_for(work: Callable[[], Awaitable[None]]) -> None:
        at_once, kinds = Backoff(first=0, longest=0, jitter=0), caused_by(DatabaseUnreachable)
        await retry_outage(work, Awaited.DATABASE, progress, on=kinds, give_up_after=None, backoff=at_once)

    async def store() -> None:
        if not seen:
            seen.append(waiting())
            raise DatabaseFull("It has no room left.")
        await wait_for(read)
        seen.append(waiting())

    async def read() -> None:
        seen.append(waiting())
        if len(seen) == 2:
            raise DatabaseUnreachable("It does not answer.")

    await wait_for(store)
    assert [*seen, waiting()] == [[0, 0], [1, 0], [1, 1], [1, 0], [0, 0]]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_without_a_host_the_metrics_are_served_at_every_address(host: str) -> None:
    """Pods of some clusters have addresses of IPv6 alone."""
    server = MetricsServer(CollectorRegistry(), 0)
    connection = HTTPConnection(host, server.port, timeout=30)
    connection.request("GET", "/metrics")
    assert connection.getresponse().status == 200
    connection.close()
    server.close()


@pytest.mark.parametrize(("path", "check"), [("/healthz", "is_alive"), ("/readyz", "is_ready")])
@pytest.mark.parametrize(("holds", "status"), [(True, 200), (False, 503), (None, 404)])
def test_a_probe_is_answered_by_its_check_where_the_process_has_one(
    path: str, check: str, holds: bool | None, status: int
) -> None:
    """It is answered by the thread of the metrics, also while the process's own event loop stands still."""
    checks: dict[str, Callable[[], bool]] = {} if holds is None else {check: lambda: holds}
    registry = CollectorRegistry()
    Gauge("memory_test", "A test.", registry=registry)
    server = MetricsServer(registry, 0, host=HOST, **checks)  # type: ignore[arg-type]  # only these
    connection = HTTPConnection(HOST, server.port, timeout=30)
    connection.request("GET", path)
    assert connection.getresponse().status == status
    connection.close()
    assert "memory_test" in scraped(server)
    server.close()


def test_what_a_worker_does_not_measure_is_no_number() -> None:
    """A zero of a backfill would read as an index that finds nothing."""
    registry = WorkerMetrics().registry
    for name in ("memory_worker_index_recall", "memory_worker_warmed"):
        assert math.isnan(registry.get_sample_value(name) or 0), name
