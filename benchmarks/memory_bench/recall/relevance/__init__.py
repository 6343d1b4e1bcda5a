"""Judges the relevance of recalled memories by the rules of ADR 41."""
