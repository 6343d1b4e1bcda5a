"""`make e2e-embedders`: third-party servers embed for an index on a cluster."""
