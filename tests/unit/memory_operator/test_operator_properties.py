"""Properties of a plan that hold for any facts."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_operator.api.conditions import OPTIONAL_CONDITIONS, ConditionType
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.clients import object_facts
from memory_operator.reconcile.facts import Credentials, Observed, Problem
from memory_operator.reconcile.plan import Apply
from memory_recall.graph import GraphState
from memory_recall.hnsw.definition import IndexProgress
from memory_recall.schema.revisions import HEAD_REVISION
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import EMPTY, MODEL, NEXT_MODEL, VALID_INDEX, World

SECRET = "s3cret-pa55word"
counts = st.integers(min_value=0, max_value=10_000)
rows = st.builds(RowCounts, total=counts, embedded=counts, pending=counts, sensitive=counts, quarantined=counts)
progress = st.builds(IndexProgress, phase=st.just("building index"), fraction=st.none() | st.floats(0, 1))
indexes = st.builds(replace, st.just(VALID_INDEX), valid=st.booleans(), progress=st.none() | progress)
graphs = st.none() | st.builds(
    GraphState,
    exists=st.booleans(),
    enabled=st.booleans(),
    kept=st.booleans(),
    queued=st.booleans(),
    filled=st.booleans(),
    pending=counts,
    differences=st.sampled_from(["", "a trigger is gone"]),
)
facts = st.builds(
    replace,
    st.just(EMPTY),
    extension_version=st.sampled_from([None, "0.8.7", "0.7.0"]),
    extension_available=st.sampled_from([None, "0.8.7", "0.8.1"]),
    schema_revision=st.sampled_from([None, "0000", HEAD_REVISION]),
    schema_differences=st.sampled_from(["", "a trigger is gone"]),
    embedding_dimensions=st.sampled_from([None, 384]),
    active_model=st.sampled_from([None, MODEL, NEXT_MODEL]),
    rows=rows,
    index=indexes,
    graph=graphs,
)
problems = st.builds(Problem, reason=st.sampled_from(Reason), message=st.text(max_size=40), remedy=st.text(max_size=20))
relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150)


@pytest.fixture
def settled_indexes(world: World) -> dict[bool, tuple[MemoryIndex, Observed]]:
    """A settled index and the facts about it, by whether it is suspended."""
    return {suspend: world.settled(suspend=suspend)[:2] for suspend in (False, True)}


@relaxed
@given(pending=st.integers(0, 199), suspend=st.booleans(), settled=st.booleans())
def test_settled_facts_yield_no_action(
    world: World, settled_indexes: dict[bool, tuple[MemoryIndex, Observed]], pending: int, suspend: bool, settled: bool
) -> None:
    index, observed = settled_indexes[suspend]
    assert observed.database_facts is not None
    rows = replace(observed.database_facts.rows, pending=pending)
    calm = replace(observed, database=replace(observed.database_facts, rows=rows)) if settled else observed
    plan = world.decide(index, **vars(calm))
    assert plan.actions == ()
    again = world.decide(index.model_copy(update={"status": plan.status}), **vars(calm))
    assert again.status == plan.status, "a second reconcile of the same facts reports the same"


@relaxed
@given(database=st.none() | facts | problems, suspend=st.booleans(), graph=st.booleans())
def test_every_plan_is_complete_and_stable(world: World, database: Any, suspend: bool, graph: bool) -> None:
    index = world.index(suspend=suspend, graph={"enabled": graph})
    plan = world.decide(index, database=database)
    assert plan.status is not None
    kinds = [condition["type"] for condition in plan.status["conditions"]]
    required = [kind.value for kind in ConditionType if kind not in OPTIONAL_CONDITIONS]
    assert [kind for kind in kinds if kind not in OPTIONAL_CONDITIONS] == required
    assert [kind.value for kind in ConditionType if kind in kinds] == kinds
    assert ConditionType.GRAPH_READY in kinds or not graph
    by_kind = {condition["type"]: condition for condition in plan.status["conditions"]}
    assert not (by_kind["Reconciling"]["status"] == "True" and by_kind["Stalled"]["status"] == "True")
    assert not (by_kind["Ready"]["status"] == "True" and by_kind["Stalled"]["status"] == "True")
    codes = {reason.code for reason in Reason}
    assert {condition["reason"] for condition in by_kind.values()} <= codes
    if suspend:
        assert plan.actions == ()
    repeated = world.decide(index.model_copy(update={"status": plan.status}), database=database)
    assert repeated.status == plan.status


@pytest.mark.promise("no-text-or-secret-in-outputs")
@relaxed
@given(
    user=st.from_regex(r"[a-z]{5,8}", fullmatch=True),
    database=facts | problems,
    scheme=st.sampled_from(["postgresql", "postgres", "postgresql+asyncpg", "mysql"]),
    path=st.sampled_from(["/app", "/other", ""]),
)
def test_no_status_and_no_object_contains_the_password(
    world: World, user: str, database: Any, scheme: str, path: str
) -> None:
    dsn = f"{scheme}://{user}:{SECRET}@pg-rw.dbaas:5432{path}"
    credentials = object_facts.credentials(dsn, "team/dsn", "uri")
    assert SECRET not in repr(credentials)
    plan = world.decide(credentials=credentials, database=database)
    written = json.dumps([plan.status, [a.manifest for a in plan.actions if isinstance(a, Apply)]])
    assert SECRET not in written
    assert "postgresql://" + user not in written
    assert isinstance(credentials, Credentials | Problem)
