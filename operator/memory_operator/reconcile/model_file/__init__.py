"""Decides which model file has to be fetched, and which objects of former fetches have to be deleted."""
