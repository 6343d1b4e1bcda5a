"""The files of models: which one has to be fetched, and what a former fetch leaves to be deleted."""
