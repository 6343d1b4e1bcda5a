"""Batch size, contexts and a query's threads are chosen by measurement, within bounds, unless they are set."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.models.profiles import PROFILES
from memory_embedder.scheduling import query_threads
from memory_embedder.scheduling.plan import ComputePlan, WorkerPlan, plan_load, plan_reranker_load
from memory_embedder.scheduling.query_threads import choose_query_threads, tune_query_threads
from memory_embedder.scheduling.tuning import Speed, WarmComputers, choose, tune
from memory_embedder.settings import EmbedderSettings
from tests.unit.memory_embedder.conftest import FACTS

PROFILE = PROFILES["all-MiniLM-L6-v2"]
PLANS = [ComputePlan(tokens, WorkerPlan(2, 1, 1)) for tokens in (256, 128, 512)]


@given(st.lists(st.floats(1, 1e6), min_size=3, max_size=3))
def test_the_default_stays_unless_another_is_a_tenth_faster(values: list[float]) -> None:
    rates = dict(zip(PLANS, values, strict=True))
    chosen = choose(rates, PLANS[0])
    if max(values) < 1.1 * values[0]:
        assert chosen == PLANS[0]
    else:
        assert rates[chosen] == max(values)


def test_the_rate_is_by_the_median_batch_so_that_a_disturbed_one_does_not_count() -> None:
    speed = Speed(128, 2, 2, 1, texts_per_second=1.0, tokens_per_second=1.0, batch_milliseconds_p50=64.0)
    assert speed.undisturbed_rate == pytest.approx(2 * 256 / 0.064)


def candidates(threads: int = 4, **settings: Any) -> list[tuple[int, int, int]]:
    plan = plan_load(EmbedderSettings(**settings), PROFILE, threads)
    return [(one.workers.general, one.workers.threads, one.batch_tokens) for one in plan.candidates]


def test_settings_that_are_given_are_in_every_candidate() -> None:
    assert candidates() == [(4, 1, 128), (4, 1, 64), (4, 1, 256), (1, 4, 128)]
    assert candidates(batch_tokens=192) == [(4, 1, 192), (1, 4, 192)]
    assert candidates(contexts=2) == [(2, 2, 128), (2, 2, 64), (2, 2, 256)]
    assert candidates(contexts=2, batch_tokens=192) == [(2, 2, 192)]
    assert candidates(threads=1) == [(1, 1, 128), (1, 1, 64), (1, 1, 256)]


def test_a_gpu_is_tried_with_nothing_that_needs_more_memory_than_its_default() -> None:
    plan = plan_load(EmbedderSettings(gpu_layers=-1), PROFILE, 4)
    assert plan.options.batch_tokens == plan.candidates[0].batch_tokens
    assert plan.options.contexts == plan.candidates[0].workers.general + 1 == 3


def test_a_gpu_whose_memory_is_short_of_the_default_is_left_the_plans_of_one_context() -> None:
    plan = plan_load(EmbedderSettings(gpu_layers=-1), PROFILE, 4)
    assert plan.options.least_contexts == 2
    assert plan.fitting(replace(FACTS, most_contexts=3)) == plan.candidates
    fewer = plan.fitting(replace(FACTS, most_contexts=2))
    assert [(one.workers.general, one.batch_tokens) for one in fewer] == [(1, 2048), (1, 1024), (1, 512)]


def test_where_the_gpu_that_was_asked_for_is_absent_a_cpu_is_planned_as_if_it_had_been_asked_for() -> None:
    """Its batches would have 2,048 tokens otherwise, for which a query waits a second, in two contexts."""
    allowed, cpu = EmbedderSettings(gpu_layers=-1, allow_cpu=True), EmbedderSettings()
    plan, expected = (plan_load(one, PROFILE, 4, 1 << 30) for one in (allowed, cpu))
    assert plan.options.on_cpu == expected.options
    assert plan.fitting(FACTS) == expected.candidates
    assert plan.fitting(replace(FACTS, layers_offloaded=7)) == plan.candidates != expected.candidates


@pytest.mark.parametrize(("offloaded", "layers"), [(0, 0), (7, -1)])
def test_a_reranker_is_where_the_model_beside_it_is(offloaded: int, layers: int) -> None:
    compute = ComputePlan(2048, WorkerPlan(general=2, threads=2, express_threads=4))
    settings = EmbedderSettings(gpu_layers=-1, allow_cpu=True, reranker="bge-reranker-base")
    facts = replace(FACTS, layers_offloaded=offloaded)
    assert plan_reranker_load(settings, PROFILE, compute, facts).gpu_layers == layers


def test_a_reranker_has_no_context_for_queries() -> None:
    compute = ComputePlan(2048, WorkerPlan(general=2, threads=2, express_threads=4))
    settings = EmbedderSettings(gpu_layers=-1, reranker="bge-reranker-base")
    options = plan_reranker_load(settings, PROFILE, compute, FACTS)
    assert (options.contexts, options.least_contexts) == (2, 1)
    assert options.reserved == FACTS.contexts_estimate_bytes


def test_a_reranker_on_a_cpu_has_the_memory_that_the_model_beside_it_leaves() -> None:
    compute = ComputePlan(256, WorkerPlan(general=2, threads=2, express_threads=4))
    settings = EmbedderSettings(reranker="bge-reranker-base")
    options = plan_reranker_load(settings, PROFILE, compute, FACTS, memory=1 << 30)
    assert options.memory == (1 << 30) - FACTS.memory_estimate_bytes
    assert plan_load(settings, PROFILE, 4, 1 << 30).options.memory == 1 << 30


@pytest.fixture
def made(engine: Any) -> list[Any]:
    """The contexts that the engine makes."""
    contexts: list[Any] = []
    make = engine.computer

    def computer(threads: int) -> Any:
        contexts.append(make(threads))
        return contexts[-1]

    engine.computer = computer
    return contexts


def test_every_candidate_is_run_and_its_contexts_are_freed(engine: Any, made: list[Any]) -> None:
    engine.facts = replace(engine.facts, batch_capacity=512)
    assert tune(engine, PLANS, seconds=60.0) in PLANS
    assert len(made) >= 2 * (1 + len(PLANS))  # the default once more, unmeasured, before all
    assert all(one.closed for one in made)


@pytest.mark.parametrize(
    ("second_time", "serves"), [(1000.0, PLANS[0]), (2000.0, PLANS[2])], ids=["by chance", "indeed"]
)
def test_a_plan_replaces_the_default_only_if_it_is_faster_twice(
    engine: Any, monkeypatch: pytest.MonkeyPatch, second_time: float, serves: ComputePlan
) -> None:
    runs = iter([(PLANS[0], 1.0), *zip(PLANS, (1000.0, 900.0, 2000.0), strict=True)])
    again = iter([(PLANS[0], 1000.0), (PLANS[2], second_time)])

    def measured(_engine: Any, plan: ComputePlan) -> float:
        expected, rate = next(runs, None) or next(again)
        assert plan == expected
        return rate

    monkeypatch.setattr("memory_embedder.scheduling.tuning._tokens_per_second", measured)
    assert tune(engine, PLANS, seconds=60.0) == serves


def test_a_context_that_cannot_be_warmed_up_is_freed(
    engine: Any, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_sequences: Any) -> Any:
        raise EmbedderError(ErrorKind.ENGINE, "no memory")

    make = engine.computer

    def failing(threads: int) -> Any:
        computer = make(threads)
        monkeypatch.setattr(computer, "embed", fail)
        return computer

    engine.computer = failing
    with pytest.raises(EmbedderError, match="no memory"):
        WarmComputers(engine, 128)(1)
    assert [one.closed for one in made] == [True]


def test_no_time_means_no_trial(engine: Any) -> None:
    assert tune(engine, PLANS, seconds=0) == PLANS[0]
    assert engine.computers == 0


def test_a_model_too_slow_for_the_time_serves_with_the_default(engine: Any) -> None:
    assert tune(engine, PLANS, seconds=1e-9) == PLANS[0]
    assert engine.computers == 2


def test_a_candidate_that_cannot_run_is_left_out_but_the_default_must_run(engine: Any) -> None:
    make = engine.computer

    def limited(threads: int) -> Any:
        if engine.computers >= 2:
            raise EmbedderError(ErrorKind.ENGINE, "no memory")
        return make(threads)

    engine.computer = limited
    assert tune(engine, PLANS, seconds=60.0) == PLANS[0]
    with pytest.raises(EmbedderError, match="no memory"):
        tune(engine, PLANS, seconds=60.0)


@pytest.mark.parametrize(
    ("milliseconds", "most", "threads"),
    [
        ({8: 9.0, 4: 6.0, 2: 7.0, 1: 12.0}, 8, 4),
        ({2: 10.0, 1: 9.5}, 2, 2),
        ({2: 5.0, 1: 9.0}, 2, 2),
        ({2: 11.0, 1: 10.0}, 2, 1),
        ({1: 10.0}, 2, 2),
        ({}, 2, 2),
    ],
    ids=["fewer are faster", "hardly faster", "slower", "faster by a tenth", "all unmeasured", "none measured"],
)
def test_a_query_gets_the_most_threads_unless_fewer_are_a_tenth_faster(
    milliseconds: dict[int, float], most: int, threads: int
) -> None:
    assert choose_query_threads(milliseconds, most) == threads


def test_a_querys_threads_are_tried_from_all_cores_down_to_one_and_the_context_is_freed(
    engine: Any, made: list[Any]
) -> None:
    plan = ComputePlan(128, WorkerPlan(6, 1, 6))
    tuned = tune_query_threads(engine, plan, seconds=1.0, free_cores=lambda _own: 6)
    turn = 1 + query_threads._TURN_QUERIES
    used = engine.threads_used[turn - 2 :]  # the fake's first two batches are its warm-up
    assert used[: 2 * turn] == [3] * turn + [1] * turn
    assert used[2 * turn : 3 * turn] == [6] * turn
    assert all(one.closed for one in made)
    assert replace(tuned, workers=replace(tuned.workers, express_threads=6)) == plan
    assert tune_query_threads(engine, plan, seconds=0, free_cores=lambda _own: 6) == plan


@pytest.mark.parametrize(("again", "chosen"), [(5.0, 6), (20.0, 1)])
def test_a_query_gets_fewer_threads_only_if_they_are_faster_twice(
    engine: Any, monkeypatch: pytest.MonkeyPatch, again: float, chosen: int
) -> None:
    taken = {(6, 3, 1): {6: 20.0, 3: 10.0, 1: 8.0}, (6, 1): {6: again, 1: 8.0}}
    monkeypatch.setattr(query_threads, "_query_milliseconds", lambda _engine, numbers, _free: taken[tuple(numbers)])
    tuned = tune_query_threads(engine, ComputePlan(128, WorkerPlan(6, 1, 6)), seconds=1.0, free_cores=lambda _own: 6)
    assert tuned.workers.express_threads == chosen


def slow_on_many_threads(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make queries of the fake engine take ten times as long on several threads, as they do beside other processes."""

    def seconds(computer: Any, _batch: Any) -> float:
        computer.embed(_batch)
        return 0.1 if computer.threads > 1 else 0.01

    monkeypatch.setattr(query_threads, "time_batch", seconds)


def test_trials_that_other_processes_disturb_do_not_decide(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_on_many_threads(engine, monkeypatch)
    plan = ComputePlan(128, WorkerPlan(6, 1, 6))
    disturbed = tune_query_threads(engine, plan, seconds=1.0, free_cores=lambda _own: 5)
    undisturbed = tune_query_threads(engine, plan, seconds=1.0, free_cores=lambda _own: 6)
    assert (disturbed.workers.express_threads, undisturbed.workers.express_threads) == (6, 1)


def test_a_turn_counts_only_if_the_cores_are_free_both_before_and_after_it(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_on_many_threads(engine, monkeypatch)
    readings = itertools.cycle([6, 5])
    plan = ComputePlan(128, WorkerPlan(6, 1, 6))
    tuned = tune_query_threads(engine, plan, seconds=1.0, free_cores=lambda _own: next(readings))
    assert tuned.workers.express_threads == 6
