"""The page of the variables and options that set each process, from the settings classes."""

from collections.abc import Iterable, Iterator
from enum import Enum

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

import memory_embedder.settings
import memory_operator.settings
import memory_recall.settings
from docs.makers.markdown import code, document, plain, table

PROCESSES: dict[str, type[BaseSettings]] = {
    "memory": memory_recall.settings.Settings,
    "memory-operator": memory_operator.settings.Settings,
}
NOTES = {
    "memory": "Of the commands, the Jobs and the sync worker.",
    "memory-operator": "The chart sets these variables; nobody else has to.",
}
INTRODUCTION = """\
The commands, workers and operator read their settings from the environment, the embedder from its command line.
Whatever is not listed here is a constant of the program."""
EMBEDDER = "The operator gives these options to the pods that it starts."


def page() -> str:
    """Return the page of the settings of every process."""
    parts = [
        document(f"## `{process}`", NOTES[process], table(("variable", "default", "meaning"), rows(variables(process))))
        for process in PROCESSES
    ]
    serve = table(("option", "default", "meaning"), rows(options()))
    return document("# Settings", INTRODUCTION, *parts, document("## `memory-embedder serve`", EMBEDDER, serve))


def rows(settings: Iterable[tuple[str, FieldInfo]]) -> Iterator[tuple[str, str, str]]:
    """Yield a table row for each setting."""
    for name, field in settings:
        default = field.get_default(call_default_factory=False)
        value = default.value if isinstance(default, Enum) else default
        yield code(name), code("" if value in (None, ()) else value), plain(field.description or "")


def variables(process: str) -> list[tuple[str, FieldInfo]]:
    """Return the variables of a process by their full names."""
    settings = PROCESSES[process]
    return list(_leaves(settings, settings.model_config["env_prefix"]))


def options() -> list[tuple[str, FieldInfo]]:
    """Return the options of the embedder by their names on the command line."""
    fields = memory_embedder.settings.EmbedderSettings.model_fields
    return [(f"--{name.replace('_', '-')}", field) for name, field in fields.items()]


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _leaves(field.annotation, f"{prefix}{name}_")
        else:
            alias = field.validation_alias
            yield alias if isinstance(alias, str) else f"{prefix}{name}".upper(), field
