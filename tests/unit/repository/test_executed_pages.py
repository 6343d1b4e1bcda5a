"""Every page whose commands are executed on a cluster has its place in the order of those tests, in tests/delivery."""

from tests.delivery import test_installation_pages as installation
from tests.delivery import test_runbooks as runbooks


def test_every_section_with_commands_is_executed_in_the_order_of_the_installation_or_elsewhere() -> None:
    assert {*installation.ORDER, *installation.ELSEWHERE} == installation.SECTIONS.keys()
    assert not installation.ELSEWHERE.keys() & set(installation.ORDER)


def test_every_runbook_is_executed() -> None:
    assert sorted(runbooks.ORDER) == sorted(runbooks.PAGES)
