"""Decide whether a live object differs from the desired object, without a request to the Kubernetes API server.

A live object differs if its fingerprint annotation differs from that of the desired object. A live object also differs
if a desired field has another value, because somebody has changed the field. Fields that the operator does not set are
ignored, such as defaults, injected sidecars and the status. A NetworkPolicy's specification and a Service's selector
must be equal as a whole, because an added rule or label changes who may call whom. Quantities are compared as numbers,
because the API server rewrites `1000m` as `1`.
"""

import re
from decimal import Decimal

from memory_operator.api.spec import Manifest
from memory_operator.resources.common import ANNOTATION_FINGERPRINT

_QUANTITY = re.compile(r"^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([eE][+-]?[0-9]+)?([KMGTPE]i|[numkMGTPE])?$")
_FACTORS = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(10) ** 3, "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9, "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30, "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip


def drifted(desired: Manifest, live: Manifest | None) -> bool:
    """Return whether the desired object must be applied, because the live object is missing or differs."""
    if live is None:
        return True
    desired_fingerprint = desired["metadata"].get("annotations", {}).get(ANNOTATION_FINGERPRINT)
    live_fingerprint = (live["metadata"].get("annotations") or {}).get(ANNOTATION_FINGERPRINT)
    exact = all(_without_empty(_part(live, path)) == _without_empty(_part(desired, path)) for path in _exact(desired))
    return desired_fingerprint != live_fingerprint or not exact or not _contains(live, desired)


def _exact(desired: Manifest) -> tuple[tuple[str, ...], ...]:
    """Return the paths of those parts of an object that must be equal as a whole."""
    return {"NetworkPolicy": (("spec",),), "Service": (("spec", "selector"),)}.get(desired["kind"], ())


def _part(manifest: Manifest, path: tuple[str, ...]) -> Manifest:
    part = manifest
    for name in path:
        part = part.get(name) or {}
    return part


def _without_empty(part: Manifest) -> Manifest:
    """Return the fields without None and empty lists, which Kubernetes drops.

    Empty maps are kept, because an empty map can have a meaning.
    """
    return {name: value for name, value in part.items() if value not in (None, [])}


def _contains(live: object, desired: object) -> bool:
    if desired in ({}, []):
        return live in (None, {}, [])  # the API server drops many empty values
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(_contains(live.get(key), value) for key, value in desired.items())
    if isinstance(desired, list):
        return isinstance(live, list) and _list_contains(live, desired)
    return bool(live == desired) or _same_quantity(live, desired)


def _list_contains(live: list[object], desired: list[object]) -> bool:
    """Return whether the live list contains all desired items.

    Objects with names are compared by name, and other objects in any order. Lists of plain values (a command) must be
    equal.
    """
    objects = [item for item in desired if isinstance(item, dict)]
    if len(objects) < len(desired):
        return live == desired
    if all("name" in item for item in objects):
        named = {item.get("name"): item for item in live if isinstance(item, dict)}
        return all(_contains(named.get(item["name"]), item) for item in objects)
    return all(any(_contains(item, one) for item in live) for one in objects)


def _same_quantity(live: object, desired: object) -> bool:
    left, right = _quantity(live), _quantity(desired)
    return left is not None and left == right


def _quantity(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = _QUANTITY.match(str(value))
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    return Decimal(number + (exponent or "")) * _FACTORS.get(suffix or "", Decimal(1))
