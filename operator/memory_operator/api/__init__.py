"""The MemoryIndex resource: its spec, conditions and reasons."""
