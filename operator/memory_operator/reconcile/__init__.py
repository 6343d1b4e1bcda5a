"""Decides, by pure functions of a specification and observed facts, what is written and which status is reported."""
