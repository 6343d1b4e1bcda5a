"""Says how the costs of a table grow with its rows, and computes what more rows than were measured would take."""
