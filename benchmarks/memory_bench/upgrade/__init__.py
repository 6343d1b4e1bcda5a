"""Upgrades databases and MemoryIndex objects from every former state to the latest schema revision.

Memories are recalled meanwhile. Faults in the recalls, and lost rows and vectors, are counted.
"""
