"""A namespace can always be deleted, and an object in the foreground: nothing missing or forbidden keeps it.

These are the ways in which a deletion goes on; `tests/e2e/faults` has every situation under both policies.
"""

import pytest

from tests.support.cluster.deletions import FEW_CASES, FOREGROUND, Case, Outcome, delete_cases
from tests.support.cluster.platform import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.exclusive]
each = pytest.mark.parametrize("case", FEW_CASES, ids=str)


@pytest.fixture(scope="module")
def outcomes(platform: Platform) -> dict[Case, Outcome]:
    """What became of the cases."""
    return delete_cases(platform, FEW_CASES)


@pytest.mark.finding("D3")
@each
def test_what_is_deleted_is_gone_within_a_minute_and_no_database_object_of_ours_is_left(
    outcomes: dict[Case, Outcome], case: Case
) -> None:
    assert outcomes[case].left == ""
    assert outcomes[case].database_objects == ""


@each
def test_an_event_names_what_stays_in_the_database_where_it_was_to_be_dropped(
    outcomes: dict[Case, Outcome], case: Case
) -> None:
    """No Job can be started in a namespace that is being deleted, so the migrations cannot be undone."""
    assert all("memory migrate --to base" in message for message in outcomes[case].messages)
    assert len(outcomes[case].messages) == case.messages


@pytest.mark.finding("D31")
@pytest.mark.parametrize("case", [case for case in FEW_CASES if case.situation in {"ready", FOREGROUND}], ids=str)
def test_the_vectors_are_dropped_only_where_that_is_the_policy_and_a_job_can_be_started(
    outcomes: dict[Case, Outcome], case: Case
) -> None:
    assert outcomes[case].has_column is not (case.policy == "Delete")
