"""Runs the operator with a port given as an argument, so that several operators can run in one network."""

import sys

from memory_operator import app, cli


def main() -> None:
    """Run `memory-operator run`; the argument is the port of the metrics and of the health check."""
    app.METRICS_PORT = int(sys.argv[1])
    sys.argv[1:] = ["run"]
    cli.main()


if __name__ == "__main__":
    main()
