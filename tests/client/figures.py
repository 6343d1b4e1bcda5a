"""Computes the figures of the proof from requests made while pods were killed, and checks them against limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.client.change import MOST_LINES
from tests.client.conversation import Findings
from tests.client.inside import Request
from tests.client.own_tests import OwnTests

LONGEST = 2.0  # seconds
LEAST_SEMANTIC = 0.99


@dataclass(frozen=True)
class Span:
    """A span of Unix time."""

    begins: float
    ends: float

    def holds(self, request: Request) -> bool:
        """Return whether a request was under way in the span."""
        return request.began <= self.ends and request.began + request.seconds >= self.begins


@dataclass(frozen=True)
class Observed:
    """All observations from which the figures are computed.

    `calm` are the spans in which nothing was killed or recovering; `failover` lasts from the kill of the primary until
    a new primary is named. `elsewhere` counts words of sensitive memories in logs, and vectors of sensitive rows.
    `rows_for_unanswerable` maps a level of relevance to the mean number of rows of a prompt that no memory answers.
    """

    requests: Sequence[Request]
    calm: Sequence[Span]
    failover: Span
    rounds: Sequence[Findings]
    elsewhere: int
    patch_lines: int
    rows_for_unanswerable: Mapping[str, float]
    own_tests: OwnTests


def summarize(observed: Observed) -> dict[str, Any]:
    """Return the figures; durations in `_s` are in seconds, `semantic_answers` is a share from 0 to 1."""
    refused = [request for request in observed.requests if not request.answered]
    in_failover = [request for request in refused if observed.failover.holds(request)]
    calm = [request for request in observed.requests if any(span.holds(request) for span in observed.calm)]
    found, asked = sum(one.found for one in observed.rounds), sum(one.asked for one in observed.rounds)
    semantic = (found + sum(request.semantic for request in calm)) / (asked + len(calm))
    seen = sum(request.sensitive_texts for request in observed.requests)
    return {
        "own_tests_passed": len(observed.own_tests.after),
        "patch_lines": observed.patch_lines,
        "recall_errors": len(refused) - len(in_failover),
        "refused_in_failover": len(in_failover),
        "longest_s": round(max(request.seconds for request in observed.requests), 2),
        "semantic_answers": round(semantic, 4),
        "links_kept": all(one.links_kept for one in observed.rounds),
        "sensitive_texts_seen": seen + sum(one.sensitive_texts for one in observed.rounds) + observed.elsewhere,
        "rows_for_unanswerable": dict(observed.rows_for_unanswerable),
        "p95_ms": round(float(np.percentile([request.seconds for request in calm], 95)) * 1e3, 1),
    }


def shortcomings(figures: Mapping[str, Any], own_tests: OwnTests) -> list[str]:
    """Return the requirements that the figures do not meet, as texts."""
    rows = figures["rows_for_unanswerable"]
    wanted = {
        f"a patch of at most {MOST_LINES} lines": figures["patch_lines"] <= MOST_LINES,
        f"the API's own tests as green as before: {', '.join(sorted(own_tests.lost))}": not own_tests.lost,
        "no error outside the failover": figures["recall_errors"] == 0,
        f"no request longer than {LONGEST:g} s": figures["longest_s"] <= LONGEST,
        f"{LEAST_SEMANTIC:.0%} of the answers by meaning": figures["semantic_answers"] >= LEAST_SEMANTIC,
        "links kept": figures["links_kept"] is True,
        "fewer memories where none answers, if only likely ones are asked for": rows["likely"] < rows["everything"],
        "no text of a sensitive memory": figures["sensitive_texts_seen"] == 0,
    }
    return [claim for claim, holds in wanted.items() if not holds]
