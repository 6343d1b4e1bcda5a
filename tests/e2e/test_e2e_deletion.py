"""A namespace can always be deleted, and an object in the foreground: nothing undone, missing or forbidden keeps it."""

from collections.abc import Iterator

import pytest

from devcluster.postgres import Postgres
from tests.support.cluster.deletions import CASES, FOREGROUND, NAMESPACES, Case, Endings, Outcome
from tests.support.cluster.platform import PERMITTED, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.exclusive]
each_namespace = pytest.mark.parametrize("case", NAMESPACES, ids=str)


@pytest.fixture(scope="module")
def outcomes(platform: Platform) -> Iterator[dict[Case, Outcome]]:
    """What became of all cases, run side by side; the operator is cluster-wide again afterwards."""
    shared = platform.postgres
    doomed = Postgres(shared.cluster, shared.namespace, "pg-doomed")
    try:
        yield Endings(platform, doomed).run()
    finally:
        platform.install(*PERMITTED)


@pytest.mark.finding("D3")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_deleted_is_gone_within_a_minute_and_no_database_object_of_ours_is_left(
    outcomes: dict[Case, Outcome], case: Case
) -> None:
    assert outcomes[case].left == ""
    assert outcomes[case].database_objects == ""


@each_namespace
def test_an_event_names_what_stays_in_the_database_where_it_was_to_be_dropped(
    outcomes: dict[Case, Outcome], case: Case
) -> None:
    """No Job can be started in a namespace that is being deleted, so the migrations cannot be undone."""
    assert len(outcomes[case].messages) == (1 if case.policy == "Delete" else 0)
    assert all("memory migrate --to base" in message for message in outcomes[case].messages)


@pytest.mark.finding("D31")
@pytest.mark.parametrize("case", [case for case in CASES if case.situation in {"ready", FOREGROUND}], ids=str)
def test_the_vectors_are_dropped_only_where_that_is_the_policy_and_a_job_can_be_started(
    outcomes: dict[Case, Outcome], case: Case
) -> None:
    dropped = case == Case("Delete", FOREGROUND)
    assert outcomes[case].has_column is not dropped
