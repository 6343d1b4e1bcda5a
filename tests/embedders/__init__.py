"""`make e2e-embedders`: servers of other makes embed for an index on a cluster."""
