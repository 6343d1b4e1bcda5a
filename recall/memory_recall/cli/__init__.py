"""The `memory` command line: thin commands over the library, which print tables for people and JSON for programs."""
