"""The benchmark of a fleet: many MemoryIndex objects that change at once, and many recalls of a large table."""
