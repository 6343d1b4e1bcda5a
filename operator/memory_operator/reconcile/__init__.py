"""The pure decision: from a specification and observed facts to writes and a status."""

from memory_operator.reconcile.core import reconcile, refuse

__all__ = ["reconcile", "refuse"]
