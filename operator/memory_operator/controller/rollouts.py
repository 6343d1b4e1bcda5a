"""Roll out a new default embedder image, which an upgrade of the operator brings, to one MemoryIndex at a time.

Until the embedder of this MemoryIndex is ready, all other embedders keep the former image. Therefore an image that
cannot run stops only one embedder. The operator does not store which MemoryIndex has the new image: after a restart,
the operator may roll out the image to a second MemoryIndex.
"""

from dataclasses import dataclass

from memory_operator.api.embedder import COMPONENT
from memory_operator.api.spec import MemoryIndex
from memory_operator.controller.queue import Key
from memory_operator.reconcile.facts import Observed
from memory_operator.reconcile.plan import Apply, Plan
from memory_operator.reconcile.rollout import has_older_image, image_of
from memory_operator.resources.common import Images


def rolls_out_default_image(index: MemoryIndex, observed: Observed, images: Images, plan: Plan) -> bool:
    """Return whether the plan replaces embedder pods that run an older default image."""
    name = f"{index.name}-{COMPONENT}"
    applied = [action.manifest for action in plan.actions if isinstance(action, Apply)]
    deployments = [one for one in applied if (one["kind"], one["metadata"]["name"]) == ("Deployment", name)]
    new = [one for one in deployments if image_of(one) == images.embedder]  # another number of pods changes no image
    return bool(new) and has_older_image(index, observed, images)


@dataclass
class RolloutTurn:
    """Remembers the one MemoryIndex whose embedder may be rolled out now: the `holder` of the turn."""

    holder: Key | None = None

    def admits(self, key: Key) -> bool:
        """Give the turn to this MemoryIndex if the turn is free. Return whether this MemoryIndex holds the turn."""
        if self.holder is None:
            self.holder = key
        return self.holder == key

    def observe(self, key: Key, observed: Observed) -> None:
        """Free the turn if this MemoryIndex holds it and its embedder is ready or does not exist."""
        embedder = observed.embedder
        if self.holder == key and (embedder is None or (embedder.current and embedder.ready >= embedder.replicas)):
            self.holder = None

    def release(self, key: Key) -> None:
        """Free the turn if this MemoryIndex holds it, because the MemoryIndex no longer exists."""
        if self.holder == key:
            self.holder = None
