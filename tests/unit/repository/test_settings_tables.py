"""The tables of settings in docs/settings.md are those of the settings classes; MEMORY_TEST_UPDATE=1 rewrites them."""

import os
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

import memory_embedder.settings
import memory_operator.settings
import memory_recall.settings

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"
MOST_SETTINGS = 48
PROCESSES: dict[str, type[BaseSettings]] = {
    "memory": memory_recall.settings.Settings,
    "memory-operator": memory_operator.settings.Settings,
    "memory-embedder": memory_embedder.settings.EmbedderSettings,
}


def leaves(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    """Each variable of a settings class, by its full name, with its field."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, f"{prefix}{name}_")
        else:
            alias = field.validation_alias
            yield alias if isinstance(alias, str) else f"{prefix}{name}".upper(), field


def variables(process: str) -> list[tuple[str, FieldInfo]]:
    """The variables of a process."""
    settings = PROCESSES[process]
    return list(leaves(settings, settings.model_config["env_prefix"]))


def shown(default: object) -> str:
    """A default as the table shows it."""
    value = default.value if isinstance(default, Enum) else default
    return "" if value is None or value in ("", ()) else f"`{value}`"


def table(process: str) -> str:
    """The table of a process in Markdown."""
    rows = [
        f"| `{name}` | {shown(field.get_default(call_default_factory=False))} | {field.description} |"
        for name, field in variables(process)
    ]
    return "\n".join(["| Variable | Default | Meaning |", "|---|---|---|", *rows])


@pytest.mark.parametrize("process", PROCESSES)
def test_the_page_lists_every_variable(process: str) -> None:
    """A table is generated from the settings class, so that it can neither lack nor invent a variable."""
    page = PAGE.read_text()
    begin, end = f"<!-- settings of {process} -->\n", f"\n<!-- end of {process} -->"
    found = re.search(f"{re.escape(begin)}(.*?){re.escape(end)}", page, re.DOTALL)
    assert found, process
    if os.environ.get("MEMORY_TEST_UPDATE"):
        PAGE.write_text(page[: found.start(1)] + table(process) + page[found.end(1) :])
    else:
        assert found[1] == table(process)


def test_every_variable_says_what_it_is_for() -> None:
    """A setting without a description would be an empty cell."""
    assert [name for process in PROCESSES for name, field in variables(process) if not field.description] == []


def test_there_are_few_variables() -> None:
    """What nobody needs to set is a constant."""
    assert sum(len(variables(process)) for process in PROCESSES) <= MOST_SETTINGS
