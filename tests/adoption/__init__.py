"""Proves that stores of other programs are adopted as they are, with the programs themselves: `make e2e-adopt`."""
