"""A process that takes the GPU's memory: `python -m tests.gpu.occupying MIB` leaves that many MiB free.

It prints a line when it has them and keeps them until its standard input is closed.
"""

from __future__ import annotations

import ctypes
import sys

from tests.support.gpu import cuda_library

_BLOCK = 16 << 20


def main(leave: int) -> None:
    """Take blocks until no more than `leave` bytes are free."""
    runtime = cuda_library("libcudart")
    free, total, address = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
    while True:
        if runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) != 0:
            raise SystemExit("the CUDA runtime does not say how much memory is free")
        size = min(free.value - leave, 4 << 30)
        if size < _BLOCK or runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)) != 0:
            break
    sys.stdout.write(f"{free.value >> 20}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]) << 20)
