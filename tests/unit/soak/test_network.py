"""The rules of the packet filter name both sides, and what is added is removed."""

import pytest

from tests.soak.network import Disruption, Party, restored, rules

HERE, THERE = Party(("10.244.0.5",)), Party(("10.244.0.6", "10.244.0.7"), 5432)


@pytest.mark.parametrize("disruption", Disruption)
def test_everything_that_is_added_is_in_tables_that_are_removed(disruption: Disruption) -> None:
    tables = {line.split()[3] for line in rules("soak1", HERE, THERE, disruption).splitlines() if "chain" not in line}
    assert tables == {"soak1"}
    assert restored("soak1").splitlines() == ["delete table ip soak1", "delete table bridge soak1"]


def test_one_way_severs_only_what_the_first_sends() -> None:
    text = rules("soak1", HERE, THERE, Disruption.ONE_WAY)
    assert "ip saddr 10.244.0.5 ip daddr 10.244.0.6 tcp dport 5432 drop" in text
    assert "ip daddr 10.244.0.5" not in text


def test_both_ways_are_cut_at_the_port_alone() -> None:
    text = rules("soak1", HERE, THERE, Disruption.CUT)
    assert "ip saddr 10.244.0.7 ip daddr 10.244.0.5 tcp sport 5432 drop" in text


def test_a_reset_is_sent_where_packets_are_routed_and_they_are_dropped_where_they_are_bridged() -> None:
    verdicts = {tuple(line.split()[2:3]): line for line in rules("s", HERE, THERE, Disruption.RESET).splitlines()}
    assert verdicts["ip",].endswith("reject with tcp reset")
    assert verdicts["bridge",].endswith("drop")
