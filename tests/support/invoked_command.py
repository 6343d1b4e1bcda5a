"""Runs the command `memory` in the tests' own process, in which a test may have replaced a part of it."""

from collections.abc import Mapping, Sequence

from typer.testing import CliRunner, Result

from memory_recall.cli.app import create_app, parts_of


def invoke_memory(
    arguments: Sequence[str], environment: Mapping[str, str | None] | None = None, *, given: str | bytes = ""
) -> Result:
    """Run `memory` with these arguments, the first of which is the command, until it ends.

    Only the part with this command is assembled, as in a process of its own. That of all parts takes 25 ms, and the
    tests run hundreds of commands. `environment` is added to that of the tests; None removes a variable. `given` is the
    whole standard input.
    """
    return CliRunner().invoke(create_app(parts_of(arguments[0])), arguments, input=given, env=environment)
