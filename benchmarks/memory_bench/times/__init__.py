"""Measures whether the periods that a memory's text names should count for the boost of named times (ADR 33)."""
