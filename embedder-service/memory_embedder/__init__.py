"""Private embedding service on llama.cpp, with an OpenAI-compatible HTTP interface.

Queries and documents wait in separate queues, the lanes. `cli` is the command line and `server` runs the service. They
use five packages, each of which imports only those after it: `http` (routes), `scheduling` (lanes, threads, the
service), `engine` (the only package that uses llama.cpp), `models` (known models and their files) and `telemetry`
(metrics, logs, traces).
"""

__version__ = "0.1.0"
