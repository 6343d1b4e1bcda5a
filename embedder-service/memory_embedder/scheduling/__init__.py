"""Scheduling: two lanes, the threads that compute their batches, and the service on top of them."""
