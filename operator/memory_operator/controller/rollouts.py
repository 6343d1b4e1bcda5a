"""Roll out a new default embedder image, which an upgrade of the operator brings, to one MemoryIndex at a time.

Until a pod of this MemoryIndex's embedder serves with the new image, all other embedders keep the former one. Therefore
an image that cannot run stops only one embedder in an hour. The operator does not store which MemoryIndex has the new
image: after a restart, the operator may roll out the image to a second MemoryIndex.

Whoever writes a MemoryIndex must not keep the image from others. Therefore an embedder that does not serve takes no
turn, since what becomes of it says nothing about the image. An edit of the specification ends the turn, since it may be
why no pod is ready, and so does an hour.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from memory_operator.api.embedder import COMPONENT
from memory_operator.api.spec import MemoryIndex
from memory_operator.controller.queue import Key
from memory_operator.reconcile.facts import Observed
from memory_operator.reconcile.plan import Apply, Plan
from memory_operator.reconcile.rollout import has_older_image, image_of, pods_serve
from memory_operator.resources.common import Images

_log = structlog.get_logger(__name__)

LONGEST_TURN = timedelta(hours=1)


def rolls_out_default_image(index: MemoryIndex, observed: Observed, images: Images, plan: Plan) -> bool:
    """Return whether the plan replaces embedder pods that run an older default image."""
    name = f"{index.name}-{COMPONENT}"
    applied = [action.manifest for action in plan.actions if isinstance(action, Apply)]
    deployments = [one for one in applied if (one["kind"], one["metadata"]["name"]) == ("Deployment", name)]
    new = [one for one in deployments if image_of(one) == images.embedder]  # another number of pods changes no image
    return bool(new) and has_older_image(index, observed, images)


@dataclass(frozen=True)
class _Turn:
    holder: Key
    generation: int
    began: datetime


@dataclass
class RolloutTurn:
    """Lets one MemoryIndex at a time roll out its embedder: that MemoryIndex, the holder, has the turn."""

    _turn: _Turn | None = None

    def admits(self, index: MemoryIndex, observed: Observed, now: datetime) -> bool:
        """Return whether this MemoryIndex may roll out its embedder; give it the turn if that is free."""
        if not pods_serve(observed.embedder):
            return True
        key = (index.namespace, index.name)
        turn = self._turn
        if turn is not None and turn.holder != key and now - turn.began >= LONGEST_TURN:
            namespace, name = turn.holder
            _log.warning("embedder is not ready with the new image; others go on", namespace=namespace, name=name)
            turn = None
        self._turn = turn or _Turn(key, index.generation, now)
        return self._turn.holder == key

    def observe(self, index: MemoryIndex, observed: Observed) -> None:
        """Free the turn if this MemoryIndex holds it, and a pod serves, none is wanted, or the object was edited."""
        turn, embedder = self._turn, observed.embedder
        if turn is None or turn.holder != (index.namespace, index.name):
            return
        if embedder is None or not embedder.replicas or pods_serve(embedder) or index.generation != turn.generation:
            self._turn = None

    def release(self, key: Key) -> None:
        """Free the turn if this MemoryIndex holds it, because it is deleted or cannot be read."""
        if self._turn is not None and self._turn.holder == key:
            self._turn = None
