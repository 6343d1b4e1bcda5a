"""The embedder fetches from no address that the operator does not connect to, though neither imports the other."""

import pytest

from memory_embedder.models import fetch_addresses as fetched
from memory_operator.reconcile.authorization import addresses as connected
from tests.unit.memory_operator.test_operator_addresses import FORBIDDEN

OTHERS = ["10.96.0.2", "192.168.1.7", "93.184.216.34", "2001:db8::1", "fd00::7", "::ffff:10.0.0.1", "100.100.100.201"]


@pytest.mark.finding("security L4")
@pytest.mark.parametrize("address", [*FORBIDDEN, *OTHERS])
def test_both_sides_refuse_the_same_addresses(address: str) -> None:
    of_the_api_server = "10.96.0.1" in address
    assert fetched.is_forbidden(address) is (connected.is_forbidden(address) and not of_the_api_server)
