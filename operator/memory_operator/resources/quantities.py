"""Compare Kubernetes quantities as numbers, because the API server rewrites them: `1000m` as `1`, `2000` as `2k`."""

import re
from decimal import Decimal

# Whoever edits an object may write longer numbers and exponents; they are compared as texts.
_QUANTITY = re.compile(
    r"^([+-]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40}))([eE][+-]?[0-9]{1,3})?([KMGTPE]i|[numkMGTPE])?$"
)
_FACTORS = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(10) ** 3, "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9, "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30, "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip


def quantity(value: object) -> Decimal | None:
    """Return the number that a quantity stands for, or None if the value is no quantity."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = _QUANTITY.match(str(value))
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    return Decimal(number + (exponent or "")) * _FACTORS.get(suffix or "", Decimal(1))


def same_quantity(left: object, right: object) -> bool:
    """Return whether two values are quantities that stand for the same number."""
    first = quantity(left)
    return first is not None and first == quantity(right)
