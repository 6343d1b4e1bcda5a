"""Scheduling: lanes, batches, and the threads that compute them."""
