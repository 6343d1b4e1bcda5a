"""The engine: what turns token ids into vectors.

`protocol` is the seam that the rest of the service and the tests' fakes know; `backends`, `native_batch` and `llama`
are the only modules that touch ctypes.

The threads of a context meet at every operation. GNU's OpenMP lets the first to arrive spin 300,000 rounds, which is
milliseconds, before it sleeps; where another process is on the core that the last one needs, all of them burn their
turns, dozens of times a text. So they spin a thirtieth of that (docs/adr/0015). The library reads it when it is loaded,
which is why it is said here, before any module of this package imports llama.cpp; what the user has set stays.
"""

import os

_SPINS = "10000"

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
