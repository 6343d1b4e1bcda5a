"""Keeps memory texts and connection strings in a process's RAM out of core files and away from other processes.

The `memory` commands and the operator call `forbid_core_dumps` when they start. The embedder shares no code with them
and has a module of its own for this.
"""

import ctypes
import resource

_PR_SET_DUMPABLE = 4


def forbid_core_dumps() -> None:
    """Forbid core files and, on Linux, ptrace by other processes of the same user.

    Child processes inherit the ban on core files, but not the ban on ptrace.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:  # Linux has it
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
