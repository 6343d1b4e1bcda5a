"""`python -m memory_recall` is the command `memory`."""

from memory_recall.cli.app import main

main()
