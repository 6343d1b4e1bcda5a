"""The concept graph: which concepts a memory has (ADR 26)."""
