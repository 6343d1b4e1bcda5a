"""Measures recall on every labelled set, for each leg and for many fusion settings."""
