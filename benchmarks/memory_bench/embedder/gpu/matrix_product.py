"""Measures how fast a GPU multiplies matrices in half precision, by the cuBLAS that llama.cpp's CUDA backend uses."""

import ctypes
import time
from collections.abc import Callable

import numpy as np

from memory_bench.embedder.subject import median
from tests.support.gpu import cuda_library

_ROWS = 8192  # tokens of a large batch
_REPEATED = 10  # products between two looks at the clock
_TO_DEVICE = 1
_HALF = 2  # CUDA_R_16F
_SUMS_IN_F32 = 68  # CUBLAS_COMPUTE_32F
_DEFAULT_ALGORITHM = -1


def gpu_gemm_flops(width: int, seconds: float) -> float:
    """Return the floating-point operations per second of a product of F16 matrices whose sums are F32.

    The matrices have the shape of those in a feed-forward layer of width `width`, for 8,192 tokens.

    Raises:
        ValueError: the libraries of requirements/cuda.txt are not installed, or a call of CUDA fails.
    """
    runtime, blas = cuda_library("libcudart"), cuda_library("libcublas")
    rng = np.random.default_rng(0)
    left = rng.standard_normal((_ROWS, width), dtype=np.float32).astype(np.float16)
    right = rng.standard_normal((width, 4 * width), dtype=np.float32).astype(np.float16)
    addresses = [ctypes.c_void_p() for _ in range(3)]
    handle = ctypes.c_void_p()
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    try:
        for address, data in zip(addresses, (left, right, None), strict=True):
            size = ctypes.c_size_t(data.nbytes if data is not None else _ROWS * 4 * width * 2)
            _check(runtime.cudaMalloc(ctypes.byref(address), size), "cudaMalloc")
            if data is not None:
                pointer = ctypes.c_void_p(data.ctypes.data)
                _check(runtime.cudaMemcpy(address, pointer, size, _TO_DEVICE), "cudaMemcpy")
        _check(blas.cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")

        def multiply() -> None:
            # Column by column, as cuBLAS reads matrices, so the product is that of the transposed ones.
            for _ in range(_REPEATED):
                status = blas.cublasGemmEx(
                    *(handle, 0, 0, 4 * width, _ROWS, width, ctypes.byref(one)),
                    *(addresses[1], _HALF, 4 * width, addresses[0], _HALF, width, ctypes.byref(zero)),
                    *(addresses[2], _HALF, 4 * width, _SUMS_IN_F32, _DEFAULT_ALGORITHM),
                )
                _check(status, "cublasGemmEx")
            _check(runtime.cudaDeviceSynchronize(), "cudaDeviceSynchronize")

        return 2.0 * _ROWS * width * 4 * width * _REPEATED / _median_seconds(multiply, seconds)
    finally:
        if handle.value:
            blas.cublasDestroy_v2(handle)
        for address in addresses:
            runtime.cudaFree(address)


def _median_seconds(action: Callable[[], None], seconds: float) -> float:
    action()
    durations: list[float] = []
    until = time.perf_counter() + seconds
    while len(durations) < 3 or time.perf_counter() < until:
        started = time.perf_counter()
        action()
        durations.append(time.perf_counter() - started)
    return median(durations)


def _check(status: int, call: str) -> None:
    if status != 0:
        raise ValueError(f"{call} ended with status {status}; the GPU's matrix product cannot be measured")
