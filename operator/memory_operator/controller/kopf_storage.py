"""Keeps nothing of objects for kopf, whose storages copy each object several times for every event of a watch.

kopf compares an object with its former state for handlers of changes, and writes down how far handlers have got. This
operator has no such handlers. A copy of an object with thousands of fields takes a tenth of a second of the event loop,
and whoever may create objects decides how many fields they have.
"""

from collections.abc import Iterable
from typing import cast

import kopf


class NoDiffs(kopf.DiffBaseStorage):
    """Finds no difference between an object and its former state, and writes none down."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None) -> kopf.BodyEssence:  # noqa: ARG002  (kopf's interface)
        """Return nothing of the object."""
        return cast("kopf.BodyEssence", {})

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Return no former state."""

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Write nothing."""


class NoProgress(kopf.ProgressStorage):
    """Knows of no progress of handlers, and writes none down."""

    def fetch(self, *, key: kopf.HandlerId, body: kopf.Body) -> kopf.ProgressRecord | None:
        """Return no progress."""

    def store(self, *, key: kopf.HandlerId, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch) -> None:
        """Write nothing."""

    def purge(self, *, key: kopf.HandlerId, body: kopf.Body, patch: kopf.Patch) -> None:
        """Write nothing."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Write nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the state as it is, since no progress was written into it."""
        return essence
