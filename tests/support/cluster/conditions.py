"""Reads the conditions of a MemoryIndex as the API server returns it."""

from collections.abc import Mapping
from typing import Any


def is_ready(item: Mapping[str, Any]) -> bool:
    """Return whether the MemoryIndex is Ready and its status belongs to its present generation."""
    status = item.get("status") or {}
    return status_of(item, "Ready") == "True" and status.get("observedGeneration") == item["metadata"]["generation"]


def condition(item: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the condition of the type `kind`, or an empty mapping if it has not been written yet."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), {})


def status_of(item: Mapping[str, Any], kind: str) -> str:
    """Return the status of the condition of the type `kind`, or Unknown if it has not been written yet."""
    return str(condition(item, kind).get("status", "Unknown"))
