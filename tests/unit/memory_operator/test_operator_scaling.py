"""How many embedder pods are wanted, and how fast the count may change."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from memory_operator.reconcile.facts import EmbedderLoad, Recommendation
from memory_operator.reconcile.scaling import ReplicaBounds, desired_replicas, needed_replicas

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
BOUNDS = ReplicaBounds(minimum=1, maximum=4, target_seconds=10, delay_seconds=300)
ZERO = ReplicaBounds(minimum=0, maximum=4, target_seconds=10, delay_seconds=300)


def loads(*queued: float, rate: float = 100.0) -> list[EmbedderLoad]:
    return [EmbedderLoad(f"p{i}", queued_tokens=tokens, tokens_per_second=rate) for i, tokens in enumerate(queued)]


def want(
    queued: list[EmbedderLoad],
    bounds: ReplicaBounds = BOUNDS,
    *,
    current: int = 1,
    bulk: int = 0,
    pending: bool = False,
) -> int:
    return needed_replicas(queued, bounds, current=current, bulk_workers=bulk, pending=pending)


def ago(seconds: float, replicas: int) -> Recommendation:
    return Recommendation(NOW - timedelta(seconds=seconds), replicas)


def test_work_beyond_the_target_needs_another_pod() -> None:
    assert want(loads(1000)) == 1
    assert want(loads(1001)) == 2
    assert want(loads(2000, 1900)) == 4


def test_never_more_than_the_maximum_nor_less_than_the_minimum() -> None:
    assert want(loads(1e9)) == 4
    assert want(loads(0)) == 1


def test_without_work_zero_pods_are_enough_where_that_is_allowed() -> None:
    assert want(loads(0), ZERO) == 0
    assert want([], ZERO, current=0) == 0


def test_pending_rows_need_a_pod_even_from_zero() -> None:
    assert want([], ZERO, current=0, pending=True) == 1


def test_a_backfill_gets_a_pod_for_each_of_its_workers_up_to_the_maximum() -> None:
    assert want(loads(0), bulk=3) == 3
    assert want(loads(0), bulk=9) == 4


def test_a_queue_without_a_measured_rate_changes_nothing() -> None:
    assert want(loads(500, rate=0), current=3) == 3


def test_up_goes_at_once() -> None:
    assert desired_replicas(4, BOUNDS, current=1, history=(), now=NOW) == 4


def test_the_first_pods_are_what_is_needed() -> None:
    assert desired_replicas(1, BOUNDS, current=None, history=(), now=NOW) == 1


def test_down_waits_until_the_need_was_low_for_the_whole_delay() -> None:
    assert desired_replicas(1, BOUNDS, current=3, history=[ago(299, 1)], now=NOW) == 3
    assert desired_replicas(1, BOUNDS, current=3, history=[ago(301, 1), ago(100, 2)], now=NOW) == 2
    assert desired_replicas(1, BOUNDS, current=3, history=[ago(301, 3), ago(100, 1)], now=NOW) == 1


def test_a_restarted_operator_keeps_what_runs_until_it_has_seen_the_whole_delay() -> None:
    assert desired_replicas(1, BOUNDS, current=4, history=(), now=NOW) == 4


def test_a_lowered_maximum_is_obeyed_at_once() -> None:
    assert desired_replicas(1, BOUNDS, current=9, history=(), now=NOW) == 4


def test_without_a_delay_down_goes_at_once() -> None:
    eager = ReplicaBounds(minimum=1, maximum=4, target_seconds=10, delay_seconds=0)
    assert desired_replicas(1, eager, current=4, history=(), now=NOW) == 1


@given(
    queued=st.lists(st.floats(0, 1e9), max_size=5),
    rate=st.floats(0, 1e5),
    current=st.integers(0, 50),
    history=st.lists(st.tuples(st.floats(0, 900), st.integers(0, 9)), max_size=8),
    minimum=st.integers(0, 3),
    extra=st.integers(0, 5),
)
def test_the_count_always_lies_within_the_bounds(  # noqa: PLR0917 - hypothesis passes by name
    queued: list[float], rate: float, current: int, history: list[tuple[float, int]], minimum: int, extra: int
) -> None:
    bounds = ReplicaBounds(minimum=minimum, maximum=max(1, minimum + extra), target_seconds=10, delay_seconds=300)
    need = want(loads(*queued, rate=rate), bounds, current=current)
    past = [ago(seconds, replicas) for seconds, replicas in history]
    assert minimum <= desired_replicas(need, bounds, current=current, history=past, now=NOW) <= bounds.maximum
