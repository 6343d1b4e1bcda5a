"""What every part of `make e2e-world` is given, and what it returns."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.cluster import Cluster
from devcluster.progress import Reporter
from devcluster.settings import Settings
from tests.support.cluster.platform import Platform

Figures = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One run: a directory for files that end with it, settings, and where progress is shown."""

    scratch: Path
    settings: Settings
    reporter: Reporter


@dataclass(frozen=True)
class World:
    """A cluster with CloudNativePG, Postgres and the operator, and a directory for files that end with it."""

    platform: Platform
    scratch: Path
    settings: Settings
    reporter: Reporter

    @property
    def cluster(self) -> Cluster:
        """The Kubernetes cluster."""
        return self.platform.cluster


Part = Callable[[World], Any]
"""Tries one system, and returns its figure of the last line; raises AssertionError or DevclusterError if it cannot."""

PartAlone = Callable[[Run], Figures]
"""Tries what shares no cluster with others, and returns its figures of the last line by their names there."""
