"""The retrievers that come with the harness."""
