"""memory_operator."""
