"""Measures a model swap under load: recalls and writes go on while the model is replaced."""
