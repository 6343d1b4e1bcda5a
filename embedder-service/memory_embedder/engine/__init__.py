"""The engine: it turns texts into token ids and token ids into vectors, with llama.cpp.

`protocol` is the interface that the rest of the service and the tests' fakes use. Only `backends`, `native_batch` and
`llama` use ctypes.

The threads of a context wait for each other at every operation. GNU's OpenMP lets a waiting thread spin 300,000 rounds,
which is milliseconds, before it sleeps; where another process occupies the core that the last thread needs, all others
spin in vain, dozens of times per text. So they spin a thirtieth of that (docs/adr/0015). The library reads the variable
when it is loaded, which is why it is set here, before any module of this package imports llama.cpp. A value that the
user has set stays.
"""

import os

_SPINS = "10000"

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
