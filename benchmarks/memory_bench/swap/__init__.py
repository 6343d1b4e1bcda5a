"""Measures a model swap under load: memories are recalled and written while the model is replaced."""
