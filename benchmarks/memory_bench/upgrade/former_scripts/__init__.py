"""Scripts that a former commit's library runs; each is started by its path."""
