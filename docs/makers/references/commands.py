"""The page of the command lines, from the parsers of the programs themselves."""

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from devcluster.cli import app as devcluster_app
from devcluster.demo.app import demo
from docs.makers.markdown import code, document, paragraph, plain, table
from memory_embedder.cli import app as embedder_app
from memory_operator.cli import app as operator_app
from memory_recall.cli.app import create_app

INTRODUCTION = """\
Every command and option of every program, as `--help` describes it. Other settings come from [environment
variables](settings.md)."""
_REPOSITORY = Path(__file__).parents[3]
_EXAMPLES = re.compile(r"\bExamples?: *\n*")
_TYPES: dict[type, str] = {int: "N", float: "NUMBER", Path: "PATH"}


def programs() -> dict[str, typer.Typer]:
    """Return the command lines of all programs, by the text that a user types to start the program."""
    demo_app = typer.Typer()
    demo_app.command()(demo)
    return {
        "memory": create_app(),
        "memory-embedder": embedder_app,
        "memory-operator": operator_app,
        "python -m devcluster": devcluster_app,
        "python -m devcluster.demo": demo_app,
    }


def page() -> str:
    """Return the page of all command lines."""
    blocks = [block for name, app in programs().items() for block in command(get_command(app), name, level=2)]
    return document("# Commands", INTRODUCTION, *blocks)


def command(parsed: Any, name: str, level: int) -> Iterator[str]:  # noqa: ANN401 -- typer's copy of click has no types
    """Yield the page's blocks about a command and its sub-commands."""
    yield f"{'#' * level} `{name}`"
    yield from helped(parsed.help or "")
    rows = [_row(parameter) for parameter in parsed.params if not parameter.hidden]
    if rows:
        yield table(("argument or option", "default", "meaning"), rows)
    for inner, below in getattr(parsed, "commands", {}).items():
        yield from command(below, f"{name} {inner}", level=3)


def helped(text: str) -> Iterator[str]:
    """Yield a help text as paragraphs of Markdown; its examples become a block of code."""
    described, *examples = _EXAMPLES.split(text, maxsplit=1)
    for part in described.split("\n\n"):
        if part.strip():
            yield paragraph(plain(part))
    if examples:
        lines = [line.strip() for line in examples[0].splitlines() if line.strip()]
        yield "\n".join(["```console", *lines, "```"])


def _row(parameter: Any) -> tuple[str, str, str]:  # noqa: ANN401 -- typer's copy of click has no types
    annotation = parameter.type_descriptor.annotation
    choices = [str(choice.value) for choice in annotation] if _is_enum(annotation) else []
    is_option = parameter.opts[0].startswith("-")
    written = "/".join([*parameter.opts, *parameter.secondary_opts]) if is_option else parameter.name.upper()
    if is_option and not parameter.is_flag:
        written += " " + ("|".join(choices) or _TYPES.get(annotation, "TEXT"))
    variable = f" Also `{parameter.envvar}`." if parameter.envvar else ""
    meaning = plain(parameter.help or "") + variable
    return code(written), "required" if parameter.required else code(_default(parameter.default)), meaning


def _is_enum(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Enum)


def _default(value: Any) -> str:  # noqa: ANN401 -- an option's default is of any type
    if value is None or value is False or callable(value):
        return ""
    if isinstance(value, Path) and value.is_relative_to(_REPOSITORY):
        return str(value.relative_to(_REPOSITORY))  # the page is the same wherever the checkout lies
    return {"True": "yes"}.get(str(value), str(value.value if isinstance(value, Enum) else value))
