"""The page of the environment variables that each process reads, from the settings classes."""

from collections.abc import Iterator
from enum import Enum

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

import memory_embedder.settings
import memory_operator.settings
import memory_recall.settings
from documentation.markdown import code, document, plain, table

PROCESSES: dict[str, type[BaseSettings]] = {
    "memory": memory_recall.settings.Settings,
    "memory-operator": memory_operator.settings.Settings,
    "memory-embedder": memory_embedder.settings.EmbedderSettings,
}
NOTES = {
    "memory": "Of the commands, the Jobs and the sync worker.",
    "memory-operator": "The chart sets these variables; nobody else has to.",
    "memory-embedder": (
        "Each variable has an option of the same name: `MEMORY_EMBEDDER_GPU_LAYERS` is `--gpu-layers` of\n"
        "`memory-embedder serve`."
    ),
}
INTRODUCTION = """\
Every process reads its settings from the environment. Whatever is not listed here is a constant of the program."""


def page() -> str:
    """Return the page of the settings of every process."""
    parts = [
        document(f"## `{process}`", NOTES[process], table(("variable", "default", "meaning"), rows(process)))
        for process in PROCESSES
    ]
    return document("# Settings", INTRODUCTION, *parts)


def rows(process: str) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each variable of a process."""
    for name, field in variables(process):
        default = field.get_default(call_default_factory=False)
        value = default.value if isinstance(default, Enum) else default
        yield code(name), code("" if value in (None, ()) else value), plain(field.description or "")


def variables(process: str) -> list[tuple[str, FieldInfo]]:
    """Return the variables of a process by their full names."""
    settings = PROCESSES[process]
    return list(_leaves(settings, settings.model_config["env_prefix"]))


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _leaves(field.annotation, f"{prefix}{name}_")
        else:
            alias = field.validation_alias
            yield alias if isinstance(alias, str) else f"{prefix}{name}".upper(), field
