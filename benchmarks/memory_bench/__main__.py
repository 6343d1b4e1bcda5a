"""`python -m memory_bench`."""

from memory_bench.cli import app

app()
