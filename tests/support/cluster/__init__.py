"""MemoryIndex objects on a real cluster: tenants with a database each, an operator, and what is done to both."""
