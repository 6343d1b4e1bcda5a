"""Consents of a MemoryIndex that are withdrawn while its workers send texts."""
