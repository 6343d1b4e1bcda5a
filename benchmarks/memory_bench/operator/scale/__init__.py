"""Ten, a hundred and five hundred objects: what an edit waits, what the operator reads, writes and needs."""
