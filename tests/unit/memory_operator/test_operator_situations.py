"""In every named situation the status tells the truth, and kstatus reads it as it is meant."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from memory_operator.api.conditions import by_type
from memory_operator.api.spec import Manifest
from tests.support.gitops import kstatus
from tests.unit.memory_operator.situation_table import SITUATIONS
from tests.unit.memory_operator.situations import Situation, unplanned

UNPLANNED = unplanned()
Conditions = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module", params=SITUATIONS, ids=lambda situation: situation.name)
def situation(request: pytest.FixtureRequest) -> Situation:
    """Each situation of the table, with its object made once."""
    chosen: Situation = request.param
    return chosen


@pytest.fixture(scope="module")
def resource(situation: Situation) -> Manifest:
    return situation.resource()


@pytest.fixture(scope="module")
def conditions(resource: Manifest) -> Conditions:
    return by_type(resource["status"]["conditions"])


@pytest.mark.promise("active-model-file-recognised", case="another file of the same name")
@pytest.mark.finding("D6", case="a roll-out beside the old pod")
@pytest.mark.finding("D6", case="a roll-out whose pod crash-loops")
@pytest.mark.finding("D7", case="rows that sync has left for two minutes")
@pytest.mark.finding("D10", case="another file of the same name")
@pytest.mark.finding("D10", case="another file in the specification")
@pytest.mark.finding("D11", case="no pods, since nothing is queued")
def test_the_conditions_and_their_reasons_are_as_expected(situation: Situation, conditions: Conditions) -> None:
    ready = conditions["Ready"]
    assert (ready["status"], ready["reason"]) == (situation.ready, situation.reason)
    if situation.cause:
        kind, *expected = situation.cause
        assert [conditions[kind]["status"], conditions[kind]["reason"]] == expected


@pytest.mark.finding("D16", case="a Secret that is not there yet")
def test_kstatus_reads_the_object_as_it_is_meant(situation: Situation, resource: Manifest) -> None:
    assert kstatus.compute(resource) == situation.kstatus


@pytest.mark.finding("D7", case="sync crash-loops while rows are pending")
def test_an_object_is_ready_only_where_recalls_by_meaning_work_and_new_rows_get_vectors(
    situation: Situation, conditions: Conditions
) -> None:
    assert conditions["Ready"]["status"] != "True" or (situation.recall and situation.embeds)


@pytest.mark.finding("D25")
def test_reconciling_and_stalled_are_never_true_together(conditions: Conditions) -> None:
    assert [conditions[kind]["status"] for kind in ("Reconciling", "Stalled")] != ["True", "True"]


@pytest.mark.parametrize("name", UNPLANNED)
def test_kstatus_takes_an_object_without_a_decided_status_for_unfinished(name: str) -> None:
    resource, expected = UNPLANNED[name]
    assert kstatus.compute(resource) == expected


def test_there_are_at_least_sixty_situations_of_different_names() -> None:
    names = Counter(situation.name for situation in SITUATIONS)
    assert len(names) >= 60
    assert names.most_common(1)[0][1] == 1
