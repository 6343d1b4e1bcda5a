"""Private embedding service on llama.cpp: an OpenAI-compatible HTTP interface with separate lanes for queries and
documents.

`cli` starts it and `server` runs it. Below them lie the rooms, each of which imports only those after it: `http`
(routes), `scheduling` (lanes, threads, the service), `engine` (the only room that uses llama.cpp), `models` (known
models and their files) and `telemetry` (metrics, logs, traces).
"""

__version__ = "0.1.0"
