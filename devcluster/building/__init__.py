"""Builds what a cluster needs, at pinned versions: programs from Go modules, and the wheel of llama-cpp-python."""
