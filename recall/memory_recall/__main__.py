"""Runs the command `memory` for `python -m memory_recall`."""

from memory_recall.cli.app import main

main()
