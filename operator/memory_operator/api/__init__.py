"""The MemoryIndex resource: its specification, conditions and reasons."""
