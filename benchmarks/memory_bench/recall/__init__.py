"""Recall on every labelled set: every leg, every way of fusing, on evidence that is gathered once."""
