"""Whether a run of the soak passed: nothing wrong was seen, and enough was seen to say so."""

from collections.abc import Mapping
from typing import Any

_WRONG = {
    "leaks": "texts, vectors or links of sensitive rows where they may not be",
    "stale": "answers or vectors of a former text",
    "lost": "confirmed writes that are gone",
    "consent_exceeded": "times that something was done without consent",
    "other": "answers with deleted rows, or with rows of somebody else or of nobody",
    "logged": "logs, objects or metrics with a text of a memory",
}


def failures(figures: Mapping[str, Any]) -> list[str]:
    """Return why a run did not pass, one sentence for each reason; empty if it passed.

    How long recalls take and how soon everything is Ready is not judged, since it depends on the machine. But a run in
    which nothing was asked, seen or compared does not pass.
    """
    details, users = figures["details"], figures["details"]["users"]
    found = [f"{figures[name]} {what}" for name, what in _WRONG.items() if figures[name]]
    found += [f"grows without end: {slope}" for slope in figures["slopes"]]
    found += [f"{name} did not become Ready again" for name in details["not_ready"]]
    found += [f"the change was not completed: {change}" for change in details["incomplete"]]
    for name, store in users["stores"].items():
        if store["pending"]:
            found.append(f"{store['pending']} rows of {name} have no vector")
        if not store["rows"]:
            found.append(f"{name} has no row")
        if not users["answered"].get(name):
            found.append(f"no recall in {name} was answered")
        elif name not in users["answered_again"]:
            found.append(f"no recall in {name} was answered once everything was over")
        if not users["checks"].get(name):
            found.append(f"{name} was never looked at")
    if not figures["faults"]:
        found.append("no fault happened")
    if not users["texts_seen_in_requests"]:
        found.append("no text was seen in a request to an embedder")
    if users["packets_missed"]:
        found.append(f"{users['packets_missed']} packets were not read, so that a text may have been missed")
    return found
