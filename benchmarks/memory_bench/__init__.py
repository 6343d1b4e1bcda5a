"""memory_bench."""
