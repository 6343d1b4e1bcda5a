"""Runs the command line `memory-embedder` for `python -m memory_embedder`."""

from memory_embedder.cli import main

main()
