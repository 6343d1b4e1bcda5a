"""Decide whether the operator may act on a MemoryIndex: permitted fields, consents, server identity and table claim."""
