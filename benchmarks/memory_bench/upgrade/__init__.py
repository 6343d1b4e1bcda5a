"""Upgrades databases and MemoryIndex objects of all former revisions to head while recalls go on; counts losses."""
