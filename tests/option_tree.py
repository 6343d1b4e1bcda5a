"""The options of a command line, and which of them lines of commands give."""

import shlex
from collections.abc import Iterable
from typing import Any

import typer

Option = tuple[str, str]  # the words of a command, and the flag; a flag of an option that is on or off counts by itself


def options_of(program: typer.Typer) -> set[Option]:
    """Return every option of every command of a program, by its first name."""
    return {
        (command, flag)
        for command, found in _commands(typer.main.get_command(program))
        for parameter in found.params
        if parameter.param_type_name == "option" and not parameter.is_eager
        for flag in (parameter.opts[0], *parameter.secondary_opts)
    }


def options_given(program: typer.Typer, lines: Iterable[str]) -> set[Option]:
    """Return the options that lines such as `recall zigbee --user ana` give, by their first names."""
    commands = dict(_commands(typer.main.get_command(program)))
    given = set()
    for line in lines:
        words = shlex.split(line)
        command = max((name for name in commands if words[: len(name.split())] == name.split()), key=len)
        first = {flag: one.opts[0] for one in commands[command].params for flag in one.opts}
        first |= {flag: flag for one in commands[command].params for flag in one.secondary_opts}
        given |= {(command, first[word]) for word in words if word in first and word.startswith("-")}
    return given


def _commands(command: Any, name: str = "") -> Iterable[tuple[str, Any]]:
    """Yield each command below this one with its words; typer's classes of commands are private."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, found in command.commands.items():
        yield from _commands(found, f"{name} {word}".strip())
