"""The load that embedders report, the models that they serve, and how many of their pods run, none included."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.clients.embedder import parse_metrics, served_model
from memory_operator.reconcile.embedder import (
    WANTED_SECONDS,
    ReplicaBounds,
    desired_replicas,
    needed_replicas,
    plan_replicas,
)
from memory_operator.reconcile.facts import DeploymentFacts, EmbedderLoad, Problem, Recommendation, ReportedModel
from memory_operator.resources.embedder import embedder_options
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import FULL, World

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
BOUNDS = ReplicaBounds(minimum=1, maximum=4, target_seconds=10, delay_seconds=300)
ZERO = ReplicaBounds(minimum=0, maximum=4, target_seconds=10, delay_seconds=300)
METRICS = """\
# TYPE memory_embedder_queued_tokens gauge
memory_embedder_queued_tokens{lane="query"} 10
memory_embedder_queued_tokens{lane="document"} 500
# TYPE memory_embedder_inflight_tokens gauge
memory_embedder_inflight_tokens{lane="document"} 90
# TYPE memory_embedder_tokens_per_second gauge
memory_embedder_tokens_per_second 3000
# TYPE memory_embedder_device_info gauge
memory_embedder_device_info{device="cuda",description="Tesla T4",kernels="cuda"} 1
# TYPE memory_embedder_model_info gauge
memory_embedder_model_info{model="all-MiniLM-L6-v2",digest="sha256:aa",pooling="mean"} 1
# TYPE memory_embedder_gpu_layers_offloaded gauge
memory_embedder_gpu_layers_offloaded 25
"""


def test_an_embedders_metrics_contain_its_load_and_its_device() -> None:
    load = parse_metrics("p", METRICS)
    assert (load.queued_tokens, load.tokens_per_second, load.device, load.gpu_layers_offloaded) == (
        600,
        3000,
        "cuda",
        25,
    )


def test_an_embedders_metrics_say_which_file_it_serves() -> None:
    assert parse_metrics("p", METRICS).model == ReportedModel("Pod p", "sha256:aa", "mean")


def test_an_external_embedders_model_list_says_which_file_it_serves(world: World) -> None:
    index = world.index(embedder={"external": {"url": "http://e:8080"}})
    card = {"id": "all-MiniLM-L6-v2", "dimensions": 384, "digest": "sha256:aa", "pooling": "mean"}
    assert listed(index, {"id": "other"}, card) == ReportedModel("The embedder at http://e:8080", "sha256:aa", "mean")


def listed(index: MemoryIndex, *cards: dict[str, Any]) -> ReportedModel | Problem:
    return served_model(index, embedder_options(index), json.dumps({"data": cards}).encode())


def test_metrics_of_another_program_yield_no_load() -> None:
    load = parse_metrics("p", "# TYPE other gauge\nother 1\n")
    assert (load.queued_tokens, load.tokens_per_second, load.device) == (0, 0, None)


def test_an_external_embedder_must_serve_the_model_with_its_dimensions(world: World) -> None:
    index = world.index(embedder={"external": {"url": "http://e:8080"}})
    assert isinstance(listed(index, {"id": "all-MiniLM-L6-v2", "dimensions": 384}), ReportedModel)
    other = listed(index, {"id": "bge"})
    assert isinstance(other, Problem)
    assert other.reason is Reason.MODEL_MISMATCH
    wrong = listed(index, {"id": "all-MiniLM-L6-v2", "dimensions": 1024})
    assert isinstance(wrong, Problem)
    assert wrong.reason is Reason.DIMENSION_MISMATCH


def loads(*queued: float, rate: float = 100.0) -> list[EmbedderLoad]:
    return [EmbedderLoad(f"p{i}", queued_tokens=tokens, tokens_per_second=rate) for i, tokens in enumerate(queued)]


def want(
    queued: list[EmbedderLoad],
    bounds: ReplicaBounds = BOUNDS,
    *,
    current: int = 1,
    bulk: int = 0,
    wanted: bool = False,
) -> int:
    return needed_replicas(queued, bounds, current=current, bulk_workers=bulk, wanted=wanted)


def ago(seconds: float, replicas: int) -> Recommendation:
    return Recommendation(NOW - timedelta(seconds=seconds), replicas)


def test_work_beyond_the_target_needs_another_pod() -> None:
    assert want(loads(1000)) == 1
    assert want(loads(1001)) == 2
    assert want(loads(2000, 1900)) == 4


def test_the_needed_pods_are_within_minimum_and_maximum() -> None:
    assert want(loads(1e9)) == 4
    assert want(loads(0)) == 1


def test_without_work_zero_pods_are_enough_where_that_is_allowed() -> None:
    assert want(loads(0), ZERO) == 0
    assert want([], ZERO, current=0) == 0


def test_work_that_waits_needs_a_pod_even_from_zero() -> None:
    assert want([], ZERO, current=0, wanted=True) == 1


def test_a_backfill_gets_a_pod_for_each_of_its_workers_up_to_the_maximum() -> None:
    assert want(loads(0), bulk=3) == 3
    assert want(loads(0), bulk=9) == 4


def test_a_queue_without_a_measured_rate_changes_nothing() -> None:
    assert want(loads(500, rate=0), current=3) == 3


def test_scaling_up_happens_at_once() -> None:
    assert desired_replicas(4, BOUNDS, current=1, history=(), now=NOW) == 4


def test_the_first_deployment_has_the_needed_pods() -> None:
    assert desired_replicas(1, BOUNDS, current=None, history=(), now=NOW) == 1


def test_scaling_down_waits_until_the_need_was_low_for_the_whole_delay() -> None:
    assert desired_replicas(1, BOUNDS, current=3, history=[ago(299, 1)], now=NOW) == 3
    assert desired_replicas(1, BOUNDS, current=3, history=[ago(301, 1), ago(100, 2)], now=NOW) == 2
    assert desired_replicas(1, BOUNDS, current=3, history=[ago(301, 3), ago(100, 1)], now=NOW) == 1


def test_a_restarted_operator_keeps_all_pods_for_the_whole_delay() -> None:
    assert desired_replicas(1, BOUNDS, current=4, history=(), now=NOW) == 4


def test_a_lowered_maximum_applies_at_once() -> None:
    assert desired_replicas(1, BOUNDS, current=9, history=(), now=NOW) == 4


def test_without_a_delay_scaling_down_happens_at_once() -> None:
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
def test_the_number_of_pods_is_always_within_the_bounds(  # noqa: PLR0917 - hypothesis passes by name
    queued: list[float], rate: float, current: int, history: list[tuple[float, int]], minimum: int, extra: int
) -> None:
    bounds = ReplicaBounds(minimum=minimum, maximum=max(1, minimum + extra), target_seconds=10, delay_seconds=300)
    need = want(loads(*queued, rate=rate), bounds, current=current)
    past = [ago(seconds, replicas) for seconds, replicas in history]
    assert minimum <= desired_replicas(need, bounds, current=current, history=past, now=NOW) <= bounds.maximum


NO_PODS = {"embedder": {"minReplicas": 0, "scaleDownDelaySeconds": 0}}
NO_POD = DeploymentFacts(replicas=0, ready=0, current=True)


def replicas(world: World, **facts: Any) -> int:
    observed = world.observed(embedder=NO_POD, **facts)
    return plan_replicas(world.index(**NO_PODS), observed, world.now)[0]


def missed(seconds_ago: float) -> dict[str, Any]:
    return {"database": replace(FULL, seconds_since_wanted=seconds_ago)}


@pytest.mark.finding("D11")
def test_a_recall_that_missed_the_embedder_starts_one_pod(world: World) -> None:
    assert replicas(world) == 0
    assert replicas(world, **missed(5)) == 1


def test_a_mark_that_is_not_repeated_is_over(world: World) -> None:
    assert replicas(world, **missed(WANTED_SECONDS)) == 1
    assert replicas(world, **missed(WANTED_SECONDS + 1)) == 0


def test_a_pending_row_starts_a_pod(world: World) -> None:
    assert replicas(world, database=replace(FULL, rows=RowCounts(total=1, pending=1))) == 1


def test_a_database_that_does_not_answer_starts_no_pod_and_stops_none(world: World) -> None:
    away = Problem(Reason.DATABASE_UNREACHABLE, "refused.")
    assert replicas(world, database=away) == 0
    serving = world.observed(embedder=DeploymentFacts(1, 1, current=True), database=away)
    assert plan_replicas(world.index(**NO_PODS), serving, world.now)[0] == 1


def test_at_zero_the_mark_is_read_every_ten_seconds(world: World) -> None:
    index, observed, _ = world.settled(**NO_PODS)
    plan = world.decide(index, **vars(replace(observed, embedder=NO_POD)))
    assert plan.requeue_after == 10.0
    assert plan.status is not None
    reasons = {c["type"]: (c["status"], c["reason"]) for c in plan.status["conditions"]}
    assert reasons["Ready"] == ("False", "ScaledToZero")
    assert (reasons["Reconciling"][0], reasons["Stalled"][0]) == ("False", "False")
    assert plan.actions == ()
