"""Measures a concept graph as a third leg of recall, by the rules of ADR 26."""
