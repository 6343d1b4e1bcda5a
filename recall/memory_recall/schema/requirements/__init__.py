"""What a table of memories must be like that no migration can bring about: unique ids, and rows that a role may see.

Each requirement has a pure function that names the faults of a table, and SQL with which a statement checks the
requirement at the moment in which it relies on it.
"""
