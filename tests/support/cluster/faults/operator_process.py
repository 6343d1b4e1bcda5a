"""Runs the operator with ports given as arguments, so that several operators can run in one network."""

import sys

from memory_operator import app, cli


def main() -> None:
    """Run `memory-operator run`; the two arguments are the ports of the metrics and of the health check."""
    app.METRICS_PORT, app.HEALTH_PORT = (int(argument) for argument in sys.argv[1:3])
    sys.argv[1:] = ["run"]
    cli.main()


if __name__ == "__main__":
    main()
