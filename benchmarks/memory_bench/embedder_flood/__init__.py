"""A flood of requests to a real server, 30 % of them malformed, during which it must stay up and not grow."""
