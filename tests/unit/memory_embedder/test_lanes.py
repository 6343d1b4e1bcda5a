"""The guarantees of the scheduler, in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.scheduling.lanes import Batch, Item, Lane, LaneLimits, Lanes, Rate, Role

LONGEST = 256
BATCH_TOKENS, BATCH_SEQUENCES = 256, 32


def make_lanes(
    *, query_limit: int = 10**9, query_request: int = 10**9, document_limit: int = 10**9, streak: int = 8
) -> Lanes:
    limits = LaneLimits(
        BATCH_TOKENS,
        BATCH_SEQUENCES,
        queued_tokens={Lane.QUERY: query_limit, Lane.DOCUMENT: document_limit, Lane.RERANK: document_limit},
        request_tokens={Lane.QUERY: query_request, Lane.DOCUMENT: document_limit, Lane.RERANK: query_request},
        query_streak=streak,
    )
    return Lanes(limits, tokens_per_second=1000)


def items(request: int, lane: Lane, sizes: Iterable[int]) -> list[Item]:
    return [Item(request, index, lane, size) for index, size in enumerate(sizes)]


@dataclass
class Simulation:
    """Workers that compute one token per unit of time."""

    lanes: Lanes
    workers: list[Role]
    now: int = 0
    running: list[tuple[int, int, Batch]] = field(default_factory=list)
    finished: dict[tuple[int, int], int] = field(default_factory=dict)
    begun: dict[tuple[int, int], int] = field(default_factory=dict)
    begun_by: dict[tuple[int, int], Role] = field(default_factory=dict)

    def start_idle(self) -> None:
        busy = {worker for _, worker, _ in self.running}
        for worker, role in enumerate(self.workers):
            express_free = any(
                other is Role.EXPRESS and number not in busy for number, other in enumerate(self.workers)
            )
            if worker in busy or (batch := self.lanes.take(role, express_free=express_free)) is None:
                continue
            busy.add(worker)
            self.begun_by |= {(item.request, item.index): role for item in batch.items}
            for item in batch.items:
                self.begun[item.request, item.index] = self.now
            heapq.heappush(self.running, (self.now + batch.tokens, worker, batch))

    def run_until(self, time: int) -> None:
        self.start_idle()
        while self.running and self.running[0][0] <= time:
            self.now, _, batch = heapq.heappop(self.running)
            self.lanes.finish(batch, computed=batch.tokens, now=self.now)
            for item in batch.items:
                self.finished[item.request, item.index] = self.now
            self.start_idle()
        self.now = max(self.now, time)


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 2000), st.sampled_from(list(Lane)), st.lists(st.integers(1, LONGEST), min_size=1, max_size=12)
    ),
    min_size=1,
    max_size=40,
)
CREWS = st.sampled_from(
    [
        [Role.GENERAL],
        [Role.EXPRESS, Role.GENERAL],
        [Role.GENERAL, Role.EXPRESS],
        [Role.EXPRESS, Role.GENERAL, Role.GENERAL],
        [Role.GENERAL, Role.GENERAL, Role.EXPRESS],
        [Role.EXPRESS, Role.GENERAL, Role.RERANK],
    ]
)


@given(ARRIVALS, CREWS, st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_everything_admitted_is_computed_exactly_once_and_the_counts_return_to_zero(
    arrivals: list[tuple[int, Lane, list[int]]], crew: list[Role], streak: int
) -> None:
    simulation = Simulation(make_lanes(streak=streak), [*crew, *({Role.RERANK} - set(crew))])
    expected = set()
    for number, (time, lane, sizes) in enumerate(sorted(arrivals, key=lambda arrival: arrival[0])):
        simulation.run_until(time)
        offered = items(number, lane, sizes)
        simulation.lanes.admit(lane, offered)
        expected |= {(item.request, item.index) for item in offered}
    simulation.run_until(10**9)
    assert set(simulation.finished) == expected
    for lane in Lane:
        assert (simulation.lanes.reading().queued[lane], simulation.lanes.reading().inflight[lane]) == (0, 0)


@pytest.mark.promise("embedder-requests-bounded")
@given(st.integers(0, 5000), st.integers(1, LONGEST), CREWS)
@settings(max_examples=100, deadline=None)
def test_a_query_among_saturating_documents_waits_at_most_one_batch(time: int, size: int, crew: list[Role]) -> None:
    simulation = Simulation(make_lanes(), crew)
    simulation.lanes.admit(Lane.DOCUMENT, items(1, Lane.DOCUMENT, [100] * 400))
    simulation.run_until(time)
    simulation.lanes.admit(Lane.QUERY, items(2, Lane.QUERY, [size]))
    simulation.run_until(10**9)
    assert simulation.begun[2, 0] - time <= BATCH_TOKENS


def test_with_an_express_worker_a_lone_query_does_not_wait_at_all() -> None:
    simulation = Simulation(make_lanes(), [Role.EXPRESS, Role.GENERAL])
    simulation.lanes.admit(Lane.DOCUMENT, items(1, Lane.DOCUMENT, [100] * 400))
    simulation.run_until(1234)
    simulation.lanes.admit(Lane.QUERY, items(2, Lane.QUERY, [12]))
    simulation.run_until(10**9)
    assert simulation.begun[2, 0] == 1234


@given(st.integers(0, 5000), CREWS)
@settings(max_examples=20, deadline=None)
def test_no_query_and_no_document_waits_for_pairs_that_are_reranked(time: int, crew: list[Role]) -> None:
    simulation = Simulation(make_lanes(), [Role.RERANK, *crew])
    simulation.lanes.admit(Lane.RERANK, items(1, Lane.RERANK, [100] * 400))
    simulation.run_until(time)
    simulation.lanes.admit(Lane.QUERY, items(2, Lane.QUERY, [12]))
    simulation.run_until(time)
    simulation.lanes.admit(Lane.DOCUMENT, items(3, Lane.DOCUMENT, [12]))
    simulation.run_until(10**9)
    assert simulation.begun[2, 0] == time
    assert simulation.begun[3, 0] <= time + 12


def test_requests_of_pairs_take_turns_so_that_a_small_one_does_not_wait_for_a_large_one() -> None:
    simulation = Simulation(make_lanes(), [Role.RERANK])
    simulation.lanes.admit(Lane.RERANK, items(1, Lane.RERANK, [100] * 300))
    simulation.run_until(1000)
    simulation.lanes.admit(Lane.RERANK, items(2, Lane.RERANK, [100]))
    simulation.run_until(10**9)
    assert simulation.begun[2, 0] - 1000 <= BATCH_TOKENS


def test_a_query_is_left_to_the_express_worker_unless_that_is_computing() -> None:
    simulation = Simulation(make_lanes(), [Role.GENERAL, Role.EXPRESS])
    simulation.lanes.admit(Lane.QUERY, items(1, Lane.QUERY, [12]))
    simulation.run_until(0)
    assert simulation.begun_by[1, 0] is Role.EXPRESS
    simulation.lanes.admit(Lane.QUERY, items(2, Lane.QUERY, [LONGEST]))
    simulation.run_until(1)
    assert simulation.begun_by[2, 0] is Role.GENERAL


@given(CREWS, st.integers(1, 10))
@settings(max_examples=40, deadline=None)
def test_documents_progress_under_a_flood_of_queries(crew: list[Role], streak: int) -> None:
    simulation = Simulation(make_lanes(streak=streak), crew)
    simulation.lanes.admit(Lane.DOCUMENT, items(0, Lane.DOCUMENT, [64] * 8))
    simulation.lanes.admit(Lane.QUERY, items(1, Lane.QUERY, [128] * 2000))
    simulation.run_until(10**9)
    last_document = max(time for (request, _), time in simulation.finished.items() if request == 0)
    batches_before = streak + 1
    assert last_document <= 2 * batches_before * BATCH_TOKENS + 2 * BATCH_TOKENS


@given(st.lists(st.integers(1, LONGEST), min_size=1, max_size=100))
def test_a_batch_keeps_its_budget_and_the_order(sizes: list[int]) -> None:
    lanes = make_lanes()
    lanes.admit(Lane.DOCUMENT, items(1, Lane.DOCUMENT, sizes))
    order: list[int] = []
    while (batch := lanes.take(Role.GENERAL, express_free=False)) is not None:
        assert batch.tokens <= BATCH_TOKENS
        assert len(batch.items) <= BATCH_SEQUENCES
        order += [item.index for item in batch.items]
    assert order == list(range(len(sizes)))


@given(st.lists(st.lists(st.integers(1, LONGEST), min_size=1, max_size=9), max_size=50), st.integers(1, 3000))
def test_queued_tokens_never_exceed_the_lanes_limit(requests: list[list[int]], limit: int) -> None:
    lanes = make_lanes(document_limit=limit)
    for number, sizes in enumerate(requests):
        kind = None
        try:
            lanes.admit(Lane.DOCUMENT, items(number, Lane.DOCUMENT, sizes))
        except EmbedderError as refusal:
            kind = refusal.kind
        assert (kind is ErrorKind.TOO_LARGE) == (sum(sizes) > limit)
        assert lanes.reading().queued[Lane.DOCUMENT] <= limit


def test_a_refusal_gives_the_seconds_until_there_is_room_by_the_measured_rate() -> None:
    lanes = make_lanes(document_limit=10_000)
    lanes.admit(Lane.DOCUMENT, items(1, Lane.DOCUMENT, [100] * 100))
    with pytest.raises(EmbedderError, match="in 5 s") as refusal:
        lanes.admit(Lane.DOCUMENT, items(2, Lane.DOCUMENT, [100] * 50))
    assert (refusal.value.kind, refusal.value.retry_after_seconds) == (ErrorKind.OVERLOADED, 5)


def test_a_full_document_lane_does_not_close_the_query_lane() -> None:
    lanes = make_lanes(document_limit=100)
    lanes.admit(Lane.DOCUMENT, items(1, Lane.DOCUMENT, [100]))
    lanes.admit(Lane.QUERY, items(2, Lane.QUERY, [100]))
    assert lanes.reading().queued[Lane.QUERY] == 100


def test_a_query_behind_a_request_of_many_is_in_the_next_batch() -> None:
    simulation = Simulation(make_lanes(), [Role.EXPRESS])
    simulation.lanes.admit(Lane.QUERY, items(1, Lane.QUERY, [100] * 300))
    simulation.run_until(1000)
    simulation.lanes.admit(Lane.QUERY, items(2, Lane.QUERY, [12]))
    simulation.run_until(10**9)
    assert simulation.begun[2, 0] - 1000 <= BATCH_TOKENS


def test_documents_are_computed_in_the_order_of_their_requests() -> None:
    simulation = Simulation(make_lanes(), [Role.GENERAL])
    for number in range(3):
        simulation.lanes.admit(Lane.DOCUMENT, items(number, Lane.DOCUMENT, [100] * 5))
    simulation.run_until(10**9)
    assert list(simulation.begun) == sorted(simulation.begun)


def test_the_documents_of_several_callers_share_the_workers_by_tokens() -> None:
    """However many requests each has, however long its texts are, and whoever came first."""
    simulation = Simulation(make_lanes(), [Role.GENERAL, Role.GENERAL])
    simulation.lanes.admit(Lane.DOCUMENT, items(1, Lane.DOCUMENT, [100] * 600), b"a")
    simulation.run_until(3 * BATCH_TOKENS)
    for number in range(2, 42):
        simulation.lanes.admit(Lane.DOCUMENT, items(number, Lane.DOCUMENT, [25] * 40), b"b")
    began, ends = simulation.now, simulation.now + 40 * BATCH_TOKENS // 2
    simulation.run_until(ends)
    computed = {
        caller: sum(
            size for (request, _), time in simulation.finished.items() if (request == 1) is of_a and time > began
        )
        for caller, of_a, size in ((b"a", True, 100), (b"b", False, 25))
    }
    assert min(computed.values()) >= 0.9 * max(computed.values()) > 0


def test_a_caller_who_comes_while_another_fills_the_lane_is_served_at_once() -> None:
    simulation = Simulation(make_lanes(document_limit=100_000), [Role.GENERAL])
    simulation.lanes.admit(Lane.DOCUMENT, items(1, Lane.DOCUMENT, [100] * 1000), b"bulk")
    simulation.run_until(1000)
    simulation.lanes.admit(Lane.DOCUMENT, items(2, Lane.DOCUMENT, [100] * 3), b"other")
    simulation.run_until(10**9)
    assert max(simulation.finished[2, index] for index in range(3)) - 1000 <= 4 * BATCH_TOKENS


@pytest.mark.parametrize("lane", list(Lane))
def test_a_caller_may_fill_its_share_of_a_full_lane_and_no_more(lane: Lane) -> None:
    lanes = make_lanes(query_limit=1000, document_limit=1000)
    lanes.admit(lane, items(1, lane, [100] * 10), b"bulk")
    with pytest.raises(EmbedderError, match="queue is full"):
        lanes.admit(lane, items(2, lane, [100]), b"bulk")
    lanes.admit(lane, items(3, lane, [100] * 5), b"other")
    with pytest.raises(EmbedderError, match="queue is full"):
        lanes.admit(lane, items(4, lane, [100]), b"other")
    assert lanes.reading().queued[lane] == 1500


@pytest.mark.promise("embedder-requests-bounded")
@pytest.mark.parametrize(("lane", "role"), [(Lane.QUERY, Role.EXPRESS), (Lane.RERANK, Role.RERANK)])
def test_one_request_of_a_caller_is_in_the_next_batch_whatever_number_of_requests_another_one_has(
    lane: Lane, role: Role
) -> None:
    simulation = Simulation(make_lanes(), [role])
    for number in range(1, 501):
        simulation.lanes.admit(lane, items(number, lane, [100]), b"many")
    simulation.run_until(1000)
    simulation.lanes.admit(lane, items(501, lane, [12]), b"other")
    simulation.run_until(10**9)
    assert simulation.begun[501, 0] - 1000 <= BATCH_TOKENS


def test_one_request_cannot_fill_the_lane_of_queries() -> None:
    lanes = make_lanes(query_limit=1000, query_request=400)
    with pytest.raises(EmbedderError, match="split it") as refusal:
        lanes.admit(Lane.QUERY, items(1, Lane.QUERY, [100] * 5))
    assert refusal.value.kind is ErrorKind.TOO_LARGE
    lanes.admit(Lane.QUERY, items(2, Lane.QUERY, [100] * 4))
    lanes.admit(Lane.QUERY, items(3, Lane.QUERY, [100]))
    assert lanes.reading().queued[Lane.QUERY] == 500


def test_dropping_a_request_removes_its_waiting_texts_and_frees_their_tokens() -> None:
    lanes = make_lanes()
    lanes.admit(Lane.DOCUMENT, items(1, Lane.DOCUMENT, [200] * 5))
    lanes.admit(Lane.DOCUMENT, items(2, Lane.DOCUMENT, [50]))
    first = lanes.take(Role.GENERAL, express_free=False)
    assert first is not None
    assert lanes.drop(1) == 800
    second = lanes.take(Role.GENERAL, express_free=False)
    assert second is not None
    assert [item.request for item in second.items] == [2]
    assert lanes.reading().inflight[Lane.DOCUMENT] == 250


def test_the_rate_follows_the_work_and_idle_time_does_not_count() -> None:
    rate = Rate(1000)
    now = 0.0
    for _ in range(400):
        rate.resume(now)
        now += 0.5
        rate.record(2000, now, idle=True)
        now += 3600
    assert 3900 < rate.value < 4100
