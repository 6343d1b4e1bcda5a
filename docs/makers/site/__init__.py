"""Adapts the documentation to MkDocs: pages from elsewhere in the repository, links, lists and navigation."""
