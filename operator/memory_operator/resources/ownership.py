"""Decide whether an existing object belongs to a MemoryIndex, so that the operator may write or delete the object.

Most objects are in the namespace of their MemoryIndex, and their owner reference contains the uid of the MemoryIndex. A
CloudNativePG Database object may be in another namespace, where owner references are invalid. Therefore the labels of a
Database object name the MemoryIndex, and an annotation contains its uid.
"""

from memory_operator.api.spec import Manifest
from memory_operator.resources.common import ANNOTATION_INDEX_UID, LABEL_INDEX_NAME, LABEL_INDEX_NAMESPACE

_MARKS = (LABEL_INDEX_NAME, LABEL_INDEX_NAMESPACE)


def controller(item: Manifest) -> Manifest | None:
    """Return the owner reference of an object's controller, or None if the object has no controller."""
    owners = item["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def controller_uid(item: Manifest) -> str | None:
    """Return the uid of an object's controller, or None if the object has no controller."""
    found = controller(item)
    return found["uid"] if found else None


def is_ours(desired: Manifest, live: Manifest) -> bool:
    """Return whether the live object belongs to the same MemoryIndex as the desired object."""
    if desired["kind"] != "Database":
        return controller_uid(live) == controller_uid(desired)
    wanted, found = desired["metadata"], live["metadata"]
    labels, uid = found.get("labels") or {}, (found.get("annotations") or {}).get(ANNOTATION_INDEX_UID)
    same_index = all(labels.get(mark) == wanted["labels"].get(mark) for mark in _MARKS)
    return same_index and uid == wanted["annotations"][ANNOTATION_INDEX_UID]


def is_former(desired: Manifest, live: Manifest) -> bool:
    """Return whether the live object is left from a deleted MemoryIndex of the same name, and will soon be deleted.

    The caller knows already that the object does not belong to the present MemoryIndex.
    """
    mine, other = controller(desired) or {}, controller(live) or {}
    return bool(mine) and all(mine[key] == other.get(key) for key in ("apiVersion", "kind", "name"))
