"""The engine: what turns token ids into vectors.

`protocol` is the seam that the rest of the service and the tests' fakes know; `backends`, `native_batch` and `llama`
are the only modules that touch ctypes.
"""
