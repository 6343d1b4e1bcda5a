"""Whether a run of the soak passed: nothing wrong was seen, and enough was seen to say so."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.soak.faults import EXCLUSIVE

_WRONG = {
    "leaks": "texts, vectors or links of sensitive rows where they may not be",
    "stale": "answers or vectors of a former text",
    "lost": "confirmed writes that are gone",
    "late": "recalls that took longer than their budget although their process went on or computed",
    "consent_exceeded": "times that something was done without consent",
    "other": "answers with deleted or removed rows, or with rows of somebody else or of nobody",
    "logged": "logs, objects or metrics with a text of a memory",
}

_HAPPENED = 0.8  # the least share of the planned faults; others may have been impossible when their time came
_LOOKS = 2.0  # at each store, the least number in a minute
_BY_MEANING = 0.5  # the least share of the recalls in a store
_FOUND = 0.25  # of these, the least share in whose answer was a memory
_RECALLS, _WRITES = 10.0, 40.0  # in each store, the least number in a minute


def failures(figures: Mapping[str, Any]) -> list[str]:
    """Return why a run did not pass, one sentence for each reason; empty if it passed.

    The longest recall is not judged, but late ones are. How soon everything is Ready is not judged, since it depends on
    the machine. But a run in which little happened, or little was asked, seen or compared, does not pass.
    """
    details, users = figures["details"], figures["details"]["users"]
    found = [f"{figures[name]} {what}" for name, what in _WRONG.items() if figures[name]]
    found += [f"grows without end: {slope}" for slope in figures["slopes"]]
    found += [f"{name} did not become Ready again" for name in details["not_ready"]]
    found += [f"the change was not completed: {change}" for change in details["incomplete"]]
    found += [f"there was no look for texts into {name}" for name, looks in details["looks"].items() if not looks]
    found += _missing_faults(details["planned"], details["happened"])
    for name in users["stores"]:
        found += _missing_looks(name, users, figures["minutes"])
    if users["packets_missed"]:
        found.append(f"{users['packets_missed']} packets were not read, so that a text may have been missed")
    return found


def _missing_faults(planned: Mapping[str, int], happened: Mapping[str, int]) -> Iterator[str]:
    """Yield the kinds of which less than half, rounded down, happened, and whether too few did so in all.

    Of a kind that happens while no other does, one is enough, because it has to wait until all others are over.
    """
    for kind, count in planned.items():
        least = min(1, count // 2) if kind in EXCLUSIVE else count // 2
        if happened.get(kind, 0) < least:
            yield f"only {happened.get(kind, 0)} of {count} happened, where at least {least} have to: {kind}"
    if sum(happened.values()) < max(1, _HAPPENED * sum(planned.values())):
        yield f"only {sum(happened.values())} of {sum(planned.values())} faults happened"


def _missing_looks(name: str, users: Mapping[str, Any], minutes: float) -> Iterator[str]:
    """Yield what of a store was not seen, or not often enough."""
    store, recalls = users["stores"][name], users["recalls_of"].get(name, {})
    if store["pending"]:
        yield f"{store['pending']} rows of {name} have no vector"
    if not store["rows"]:
        yield f"{name} has no row"
    if recalls.get("answered", 0) <= _BY_MEANING * sum(recalls.values()):
        yield f"in {name} no more than half of the recalls were answered by meaning: {dict(recalls)}"
    elif name not in users["answered_again"]:
        yield f"no recall in {name} was answered by meaning once everything was over"
    if users["found_of"].get(name, 0) < _FOUND * recalls.get("answered", 0):
        yield f"in {name} less than a quarter of these had a memory in the answer: {users['found_of'].get(name, 0)}"
    if sum(recalls.values()) < _RECALLS * minutes:
        yield f"{sum(recalls.values())} recalls in {name} in {minutes:g} minutes"
    if users["written"].get(name, 0) < _WRITES * minutes:
        yield f"{users['written'].get(name, 0)} writes in {name} in {minutes:g} minutes"
    if not users["texts_seen_in_requests"].get(name):
        yield f"no text of {name} was seen in a request to an embedder"
    if users["checks"].get(name, 0) < max(1.0, _LOOKS * minutes):
        yield f"{name} was looked at {users['checks'].get(name, 0)} times in {minutes:g} minutes"
