"""Hardens the process: keeps callers' texts out of core files and from other processes, and returns freed memory."""

from __future__ import annotations

import ctypes
import os
import resource

_PR_SET_DUMPABLE = 4
_M_MMAP_THRESHOLD = -3
_LARGE_BLOCK_BYTES = 4 << 20


def forbid_core_dumps() -> None:
    """Forbid core files of this process, and ptrace of it by other processes of the same user."""
    os.environ["GGML_NO_BACKTRACE"] = "1"  # on an assertion ggml would attach a debugger and print the stack
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def return_large_blocks() -> None:
    """Make glibc return each large block of memory to the operating system as soon as it is freed.

    By default glibc raises its threshold for that to the size of a large block that was freed, up to 32 MiB. Later
    blocks below the threshold stay with the thread that allocated them, so that one large request would cost memory for
    good.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
