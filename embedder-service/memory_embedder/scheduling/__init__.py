"""Scheduling: the two lanes (queues) of texts, the threads that compute their batches, and the embedding service."""
