"""The engine: it turns texts into token ids and token ids into vectors, with llama.cpp.

`protocol` is the interface that the rest of the service and the tests' fakes use. Only `backends`, `native_batch` and
`llama` use ctypes.

The threads of a llama.cpp context wait for each other after every operation. By default GNU's OpenMP lets a waiting
thread spin 300,000 rounds, which takes milliseconds, before it sleeps. If another process occupies the core that the
last thread needs, all others spin in vain, dozens of times per text. This module therefore sets `GOMP_SPINCOUNT` to a
thirtieth of that number (docs/adr/0015), unless the user has set a value. The variable must be set before llama.cpp is
loaded, so it is set here, before any module of this package imports llama.cpp.
"""

import os

_SPINS = "10000"

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
