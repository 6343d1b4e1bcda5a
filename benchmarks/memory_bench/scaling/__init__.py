"""Simulates a day of load on embedder pods, whose number follows from the operator's own scaling decision."""
