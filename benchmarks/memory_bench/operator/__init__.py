"""Measures the operator on a real cluster: refusals, reported states, survived faults, and many objects."""
