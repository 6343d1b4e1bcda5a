"""Whether a live object still is what we want it to be, without asking the API server to tell.

Two signs: the fingerprint annotation differs (we want something else now, maybe fewer fields), or a wanted field
has another value (somebody changed it). Fields that we did not set are others' business: defaults, injected
sidecars, status. Quantities are compared as numbers, because the API server rewrites `1000m` as `1`.
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


def drifted(wanted: Manifest, live: Manifest | None) -> bool:
    """Whether the wanted object must be applied."""
    if live is None:
        return True
    seal = wanted["metadata"].get("annotations", {}).get(ANNOTATION_FINGERPRINT)
    live_seal = (live["metadata"].get("annotations") or {}).get(ANNOTATION_FINGERPRINT)
    return seal != live_seal or not _contains(live, wanted)


def _contains(live: object, wanted: object) -> bool:
    if wanted in ({}, []):
        return True  # the API server drops many empty values
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(_contains(live.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and _list_contains(live, wanted)
    return bool(live == wanted) or _same_quantity(live, wanted)


def _list_contains(live: list[object], wanted: list[object]) -> bool:
    """Objects in a list are found by name where they have one; a command's words must be the same in the same order."""
    objects = [item for item in wanted if isinstance(item, dict)]
    if len(objects) < len(wanted):
        return live == wanted
    if all("name" in item for item in objects):
        named = {item.get("name"): item for item in live if isinstance(item, dict)}
        return all(_contains(named.get(item["name"]), item) for item in objects)
    return all(any(_contains(item, one) for item in live) for one in objects)


def _same_quantity(live: object, wanted: object) -> bool:
    left, right = _quantity(live), _quantity(wanted)
    return left is not None and left == right


def _quantity(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = _QUANTITY.match(str(value))
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    return Decimal(number + (exponent or "")) * _FACTORS.get(suffix or "", Decimal(1))
