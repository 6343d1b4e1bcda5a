"""A server is refused if it is older than the functions that our statements call."""

import pytest

from memory_recall.schema.requirements.server_version import server_faults


@pytest.mark.parametrize("major", [13, 14, 15])
def test_an_older_server_is_refused_with_its_version_and_the_one_that_is_needed(major: int) -> None:
    """Otherwise it would be an undefined function that a person reads of, long after the migration."""
    (fault,) = server_faults(major)
    assert f"Postgres {major}," in fault.message
    assert "16 or later" in fault.remedy


@pytest.mark.parametrize("major", [16, 17, 18, 19])
def test_a_server_from_sixteen_on_is_taken(major: int) -> None:
    """The tests also run with one of 16."""
    assert server_faults(major) == []
