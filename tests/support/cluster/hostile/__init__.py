"""MemoryIndex objects and servers of an author who means harm, and what must be as it was afterwards."""
