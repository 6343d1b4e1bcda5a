"""Keeps the process's memory, which holds callers' texts for moments, from core files and from other processes."""

from __future__ import annotations

import ctypes
import os
import resource

_PR_SET_DUMPABLE = 4
_M_MMAP_THRESHOLD = -3
_LARGE_BLOCK_BYTES = 4 << 20


def forbid_core_dumps() -> None:
    """Forbid core files, and ptrace by other processes of the same user."""
    os.environ["GGML_NO_BACKTRACE"] = "1"  # on an assertion ggml would attach a debugger and print the stack
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def return_large_blocks() -> None:
    """Give each large block back to the system once it is freed, so that no request costs memory for good.

    By default glibc raises its threshold to the size of a large block that was freed, up to 32 MiB, and keeps later
    blocks of that size for the thread that had them.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
