"""Hardens the process: protects callers' texts in its memory, and returns freed memory to the operating system."""

import ctypes
import os
import resource

_PR_SET_DUMPABLE = 4
_M_MMAP_THRESHOLD = -3
_LARGE_BLOCK_BYTES = 4 << 20


def forbid_core_dumps() -> None:
    """Forbid core files of this process, and tracing (ptrace) by other processes of the same user."""
    os.environ["GGML_NO_BACKTRACE"] = "1"  # on an assertion ggml would attach a debugger and print the stack
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def return_large_blocks() -> None:
    """Make glibc return each large block of memory to the operating system as soon as it is freed.

    By default glibc returns only blocks above a threshold, and raises the threshold, up to 32 MiB, to the size of each
    such block that is freed. Smaller blocks then stay with the thread that allocated them. The process would keep the
    memory of a single large request for good.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
