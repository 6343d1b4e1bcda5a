"""Cuts, resets and slows what two parties of a cluster send each other, with the kernel's packet filter."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_HOOKS = ("input", "output", "forward")
_SLOW = "counter limit rate over 24 kbytes/second burst 16 kbytes drop"
_DROP = "counter drop"
_COUNTED = re.compile(r"\bcounter packets (\d+)")
_FAMILIES = ("ip", "bridge")
_PRIORITY = 10  # after addresses of Services have been translated


class Disruption(StrEnum):
    """What happens to packets: none arrives, connections are reset, those of one way vanish, or few get through."""

    CUT = "cut"
    RESET = "reset"
    ONE_WAY = "one-way"
    SLOW = "slow"


@dataclass(frozen=True)
class Party:
    """One side: its addresses, and the port if others at that address are not meant."""

    addresses: Sequence[str]
    port: int | None = None


def rules(table: str, one: Party, other: Party, disruption: Disruption) -> str:
    """Return the commands of `nft` that come between two parties, in tables of this name."""
    ways = [(one, other)] if disruption is Disruption.ONE_WAY else [(one, other), (other, one)]
    routed = {Disruption.RESET: "counter reject with tcp reset", Disruption.SLOW: _SLOW}.get(disruption, _DROP)
    lines = [f"add table {family} {table}" for family in _FAMILIES]
    for family in _FAMILIES:
        for hook in _HOOKS if family == "ip" else ("forward",):
            lines.append(
                f"add chain {family} {table} {hook} {{ type filter hook {hook} priority {_PRIORITY}; policy accept; }}"
            )
            verdict = routed if family == "ip" or disruption is Disruption.SLOW else _DROP
            lines += [
                f"add rule {family} {table} {hook} {match} {verdict}"
                for sender, receiver in ways
                for match in _matches(sender, receiver)
            ]
    return "\n".join(lines)


def restored(table: str) -> str:
    """Return the commands of `nft` that remove what `rules` has added, or nothing if nothing is there."""
    return "\n".join(f"{verb} table {family} {table}" for family in _FAMILIES for verb in ("add", "delete"))


def listing(table: str) -> list[list[str]]:
    """Return the command lines that print what `rules` has added; one alone lists no second table."""
    return [["nft", "list", "table", family, table] for family in _FAMILIES]


def packets(listed: str) -> int:
    """Return how many packets have met the rules, by what such a command line printed."""
    return sum(int(number) for number in _COUNTED.findall(listed))


def _matches(sender: Party, receiver: Party) -> list[str]:
    ports = (f" tcp sport {sender.port}" if sender.port else "") + (
        f" tcp dport {receiver.port}" if receiver.port else ""
    )
    protocol = ports or " meta l4proto tcp"
    return [
        f"ip saddr {first} ip daddr {second}{protocol}" for first in sender.addresses for second in receiver.addresses
    ]
