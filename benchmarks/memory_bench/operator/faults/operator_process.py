"""Runs the operator beside others in one network, where its fixed ports would be taken: with ports of its own."""

import sys

from memory_operator import app, cli


def main() -> None:
    """Run `memory-operator run`; the arguments are the port of the metrics and that of the health check."""
    app.METRICS_PORT, app.HEALTH_PORT = (int(argument) for argument in sys.argv[1:3])
    sys.argv[1:] = ["run"]
    cli.main()


if __name__ == "__main__":
    main()
