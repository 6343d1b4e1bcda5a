"""Keeps the process's memory, which holds callers' texts for moments, from core files and from other processes."""

from __future__ import annotations

import ctypes
import os
import resource

_PR_SET_DUMPABLE = 4


def forbid_core_dumps() -> None:
    """Forbid core files, and ptrace by other processes of the same user."""
    os.environ["GGML_NO_BACKTRACE"] = "1"  # on an assertion ggml would attach a debugger and print the stack
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
