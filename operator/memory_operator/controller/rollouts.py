"""One at a time: the roll-outs of a new default embedder image, which an upgrade of the operator brings to all objects.

While the first object's embedder does not serve, the others keep the pods that they have, so an image that cannot run
costs one index its embedder. The turn is kept in memory: after a restart of the operator one more object may try.
"""

from dataclasses import dataclass

from memory_operator.api.spec import MemoryIndex
from memory_operator.controller.queue import Key
from memory_operator.reconcile.facts import Observed
from memory_operator.reconcile.plan import Apply, Plan
from memory_operator.reconcile.rollout import has_older_image
from memory_operator.resources.common import Images
from memory_operator.resources.embedder import COMPONENT


def rolls_out_default_image(index: MemoryIndex, observed: Observed, images: Images, plan: Plan) -> bool:
    """Return whether the plan replaces the pods of an older default image."""
    name = f"{index.name}-{COMPONENT}"
    applied = [action.manifest["metadata"]["name"] for action in plan.actions if isinstance(action, Apply)]
    return name in applied and has_older_image(index, observed, images)


@dataclass
class RolloutTurn:
    """The object whose roll-out goes first."""

    holder: Key | None = None

    def admits(self, key: Key) -> bool:
        """Return whether this object may begin its roll-out now, and then give it the turn."""
        if self.holder is None:
            self.holder = key
        return self.holder == key

    def observe(self, key: Key, observed: Observed) -> None:
        """Pass the turn on once the holder's embedder serves, or is gone."""
        embedder = observed.embedder
        if self.holder == key and (embedder is None or (embedder.current and embedder.ready >= embedder.replicas)):
            self.holder = None

    def release(self, key: Key) -> None:
        """Pass the turn on, because the object no longer exists."""
        if self.holder == key:
            self.holder = None
