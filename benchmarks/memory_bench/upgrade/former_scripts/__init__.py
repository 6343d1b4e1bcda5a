"""Scripts that run with the library of a former commit; each is started by its path."""
