"""Upgrades databases and MemoryIndex objects from every former state to the latest schema revision.

Memories are recalled meanwhile. Failed recalls, lost rows and lost vectors are counted.
"""
