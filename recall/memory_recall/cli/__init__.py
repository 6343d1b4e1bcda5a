"""The `memory` command line: thin commands over the library; human output for terminals, one JSON line for programs."""
