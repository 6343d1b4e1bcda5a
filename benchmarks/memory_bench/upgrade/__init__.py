"""Upgrades databases that the baseline made to the latest schema revision while memories are recalled.

Failed recalls, lost rows and lost vectors are counted.
"""
