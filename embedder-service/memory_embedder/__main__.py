"""`python -m memory_embedder` is the same as `memory-embedder`."""

from memory_embedder.cli import main

main()
