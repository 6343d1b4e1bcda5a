"""Evaluates recall on labelled questions: measures, significance tests and the tuning of fusion settings."""
