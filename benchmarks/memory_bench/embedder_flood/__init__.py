"""Sends a real embedder a flood of requests, 30 % of them malformed, under which its memory must not grow."""
