"""A process that recalls without pause while something else happens."""
