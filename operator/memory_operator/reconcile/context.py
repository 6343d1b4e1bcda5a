"""What the decisions of one reconcile have in common."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from memory_operator.api.conditions import Verdict
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.facts import Observed
from memory_operator.resources.common import Images
from memory_operator.resources.model_fetch import DIRECT, FetchRoute


@dataclass(frozen=True)
class Context:
    """The object, the facts observed about it, the time, and what whoever installed the operator has chosen.

    `forbidden` says by component why the existing pods of an embedder must not run.
    """

    index: MemoryIndex
    observed: Observed
    images: Images
    now: datetime
    permitted: Permitted
    route: FetchRoute = DIRECT
    forbidden: Mapping[str, Verdict] = field(default_factory=dict)
