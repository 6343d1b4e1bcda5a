"""The rules of the packet filter name both sides, and what is added is removed."""

import pytest

from tests.soak.network import Disruption, Party, packets, restored, rules

LISTED = """
table ip soak1 {
	chain output {
		type filter hook output priority filter + 10; policy accept;
		ip saddr 10.244.0.5 tcp dport 99 counter packets 5 bytes 300 reject with tcp reset
		ip saddr 10.244.0.5 counter packets 7 bytes 9000 limit rate over 24 kbytes/second burst 16 kbytes drop
	}
}
"""
HERE, THERE = Party(("10.244.0.5",)), Party(("10.244.0.6", "10.244.0.7"), 5432)


@pytest.mark.parametrize("disruption", Disruption)
def test_everything_that_is_added_is_in_tables_that_are_removed(disruption: Disruption) -> None:
    tables = {line.split()[3] for line in rules("soak1", HERE, THERE, disruption).splitlines() if "chain" not in line}
    assert tables == {"soak1"}
    assert [line for line in restored("soak1").splitlines() if line.startswith("delete")] == [
        "delete table ip soak1",
        "delete table bridge soak1",
    ]


def test_what_is_not_there_is_removed_without_an_error() -> None:
    lines = restored("soak1").splitlines()
    for family in ("ip", "bridge"):
        assert lines.index(f"add table {family} soak1") < lines.index(f"delete table {family} soak1")


@pytest.mark.parametrize("disruption", Disruption)
def test_every_rule_counts_the_packets_that_meet_it(disruption: Disruption) -> None:
    made = [line for line in rules("soak1", HERE, THERE, disruption).splitlines() if line.startswith("add rule")]
    assert made
    verdicts = ("counter drop", "counter reject with tcp reset", "16 kbytes drop")
    assert all(" counter " in line and line.endswith(verdicts) for line in made)


def test_the_packets_of_all_rules_are_added_up() -> None:
    assert packets(LISTED) == 12


def test_one_way_severs_only_what_the_first_sends() -> None:
    text = rules("soak1", HERE, THERE, Disruption.ONE_WAY)
    assert "ip saddr 10.244.0.5 ip daddr 10.244.0.6 tcp dport 5432 counter drop" in text
    assert "ip daddr 10.244.0.5" not in text


def test_both_ways_are_cut_at_the_port_alone() -> None:
    text = rules("soak1", HERE, THERE, Disruption.CUT)
    assert "ip saddr 10.244.0.7 ip daddr 10.244.0.5 tcp sport 5432 counter drop" in text


def test_a_reset_is_sent_where_packets_are_routed_and_they_are_dropped_where_they_are_bridged() -> None:
    verdicts = {tuple(line.split()[2:3]): line for line in rules("s", HERE, THERE, Disruption.RESET).splitlines()}
    assert verdicts["ip",].endswith("reject with tcp reset")
    assert verdicts["bridge",].endswith("drop")
