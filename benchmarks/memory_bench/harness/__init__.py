"""The evaluation harness: labelled sets, vectors, retrievers, runs over a set, and a report of each run."""
