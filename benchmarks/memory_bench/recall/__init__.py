"""Measures recall on every labelled set, for each leg and many ways of fusion, on evidence that is gathered once."""
