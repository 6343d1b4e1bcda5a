"""Scripts that are run with the library of a former commit; each script is started by its path."""
