"""A process imports what it needs: a `memory` command nothing of the others, the operator no embedder's client."""

import subprocess
import sys

import pytest

from memory_recall.cli.app import PARTS, create_app


@pytest.mark.parametrize("part", PARTS)
def test_each_part_registers_the_commands_under_which_it_is_found(part: str) -> None:
    app = create_app([part])
    commands = {command.name for command in app.registered_commands}
    groups = {group.name for group in app.registered_groups}
    assert commands | groups == set(PARTS[part])


def test_a_command_line_that_is_made_again_has_each_command_once() -> None:
    """Otherwise each of hundreds of command lines in one process would be slower than the one before."""
    create_app()
    registered = [
        (group.name, command.name)
        for group in create_app().registered_groups
        if group.typer_instance
        for command in group.typer_instance.registered_commands
    ]
    assert len(registered) == len(set(registered)) > 10


@pytest.mark.parametrize(("command", "unneeded"), [("roles", "numpy"), ("migrate", "httpx"), ("import", "alembic")])
def test_a_command_does_not_import_what_others_need(command: str, unneeded: str) -> None:
    program = (
        f"import sys; sys.argv = ['memory', {command!r}, '--help']\n"
        "from memory_recall.cli.app import main\n"
        "try: main()\n"
        f"finally: print('imported:', {unneeded!r} in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"memory {command}" in done.stdout
    assert done.stdout.endswith("imported: False\n")


def test_the_operator_imports_neither_numpy_nor_the_clients_of_embedders() -> None:
    """They would be a tenth of its memory, and it sends no text and reads no vector."""
    program = "import sys, memory_operator.cli; print([name for name in ('numpy', 'httpx') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_unknown_command_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "memory_recall", "migrat"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "migrat" in done.stderr
    assert "migrate" in done.stderr, "a similar command is suggested"
