"""Upgrades databases and objects of every former revision to head while recalls go on, and counts what was lost."""
