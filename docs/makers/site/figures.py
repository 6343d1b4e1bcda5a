"""Says beside the figures of a page when they were measured, and whether what they measure has changed since.

A page marks the part that quotes a benchmark by the comments `<!-- figures of NAME -->` and `<!-- end of figures -->`,
which a reader does not see; a test compares each number in it with `benchmarks/results/NAME/summary.json`. On the site
the first comment becomes a sentence. The summary has a digest of each file or folder that the figures depend on.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from devcluster.building.digests import digest_of_files
from docs.makers.site.places import REPOSITORY

RESULTS = REPOSITORY / "benchmarks" / "results"
_OPENING = re.compile(r"<!-- figures of (?P<benchmark>[a-z-]+) -->")
_MARKED = re.compile(_OPENING.pattern + r"(?P<part>.*?)<!-- end of figures -->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Measured:
    """When the figures of a benchmark were measured, and which of what they depend on has changed since."""

    day: str
    commit: str
    changed: tuple[str, ...]

    def __str__(self) -> str:
        """Return the sentence that the site shows beside the figures."""
        since = ", before the present " + ", ".join(f"`{path}`" for path in self.changed) if self.changed else ""
        return f"*Measured on {self.day} at commit {self.commit[:8]}{since}.*"


def measured(summary: Path, sources: Path = REPOSITORY) -> Measured:
    """Read a summary, and compare what it was measured on with the sources; what is gone from them has changed."""
    found = json.loads(summary.read_text(encoding="utf-8"))
    changed = [
        path
        for path, digest in found["exercises"].items()
        if not (sources / path).exists() or digest_of_files(sources, [path]) != digest
    ]
    return Measured(found["made_at"][:10], found["commit"]["id"], tuple(changed))


def marked_parts(text: str) -> list[tuple[str, str]]:
    """Return the benchmark and the text of each part of a page that is marked as figures."""
    return [(found["benchmark"], found["part"]) for found in _MARKED.finditer(text)]


def with_days_of_measurement(text: str) -> str:
    """Return the text of a page with a sentence in place of each mark."""
    return _OPENING.sub(lambda mark: str(measured(RESULTS / mark["benchmark"] / "summary.json")), text)
