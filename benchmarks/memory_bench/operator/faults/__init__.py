"""Whole lives of an object, in each of which one request of the operator fails in one way."""
