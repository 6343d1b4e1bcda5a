"""A process that takes the GPU's memory: `python -m tests.gpu.occupying MIB` leaves that many MiB free.

It prints a line when it has them and keeps them until its standard input is closed.
"""

from __future__ import annotations

import ctypes
import sys
from importlib.util import find_spec
from pathlib import Path

_BLOCK = 16 << 20


def main(leave: int) -> None:
    """Take blocks until no more than `leave` bytes are free."""
    runtime = _runtime()
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


def _runtime() -> ctypes.CDLL:
    """The CUDA runtime that pip installs beside the wheel."""
    spec = find_spec("nvidia.cu13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("requirements/cuda.txt is not installed")
    folder = Path(next(iter(spec.submodule_search_locations)))
    return ctypes.CDLL(str(next((folder / "lib").glob("libcudart.so.*"))))


if __name__ == "__main__":
    main(int(sys.argv[1]) << 20)
