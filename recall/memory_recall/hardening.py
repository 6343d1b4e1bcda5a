"""Keeps the memory of a process, which holds memories and a connection string, out of core files and other processes.

The `memory` commands and the operator call it first. The embedder, which shares no code with them, has its own.
"""

import ctypes
import resource

_PR_SET_DUMPABLE = 4


def forbid_core_dumps() -> None:
    """Forbid core files, and ptrace by other processes of the same user; child processes inherit only the first."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:  # Linux has it
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
