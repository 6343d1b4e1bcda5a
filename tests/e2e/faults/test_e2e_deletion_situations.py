"""Whatever could hang a deletion, under both policies: it ends within a minute, and an event says what stays."""

import pytest

from tests.support.cluster.deletions import CASES, FOREGROUND, Case, Outcome, delete_cases
from tests.support.cluster.platform import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.exclusive]


@pytest.fixture(scope="module")
def outcomes(platform: Platform) -> dict[Case, Outcome]:
    """What became of the cases."""
    return delete_cases(platform, CASES)


@pytest.mark.finding("D3")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_object_is_gone_and_an_event_names_what_stays(outcomes: dict[Case, Outcome], case: Case) -> None:
    found = outcomes[case]
    assert (found.left, found.database_objects, len(found.messages)) == ("", "", case.messages)


@pytest.mark.finding("D31")
@pytest.mark.parametrize("case", [case for case in CASES if case.situation in {"ready", FOREGROUND}], ids=str)
def test_only_a_deletion_in_the_foreground_under_the_policy_delete_drops_the_vectors(
    outcomes: dict[Case, Outcome], case: Case
) -> None:
    assert outcomes[case].has_column is not (case == Case("Delete", FOREGROUND))
