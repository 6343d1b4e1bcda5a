"""Writes an adoption as settings of the `memory` commands and as a MemoryIndex, as far as it is decided."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from memory_recall.schema.adoption.plan import AdoptionPlan
from memory_recall.schema.columns.names import EMBEDDING, ColumnNames, resource_name

_GROUP_VERSION = "memory-index.dev/v1alpha1"
_LONGEST_NAME = 40  # it is the prefix of names of Services and Jobs


def environment(plan: AdoptionPlan) -> dict[str, str]:
    """Return the environment variables with which the `memory` commands work on the table."""
    columns = _columns(plan.names)
    variables = {"MEMORY_TABLE": plan.request.table}
    if columns:
        variables["MEMORY_COLUMNS"] = json.dumps(columns, ensure_ascii=False)
    if plan.names.all_public:
        variables["MEMORY_SENSITIVITY"] = "none"
    if plan.names.text_search_configuration:
        variables["MEMORY_TEXT_SEARCH_CONFIGURATION"] = plan.names.text_search_configuration
    return variables


def export_lines(plan: AdoptionPlan) -> list[str]:
    """Return lines for a shell that set the environment variables."""
    return [f"export {name}={shlex.quote(value)}" for name, value in environment(plan).items()]


def resource(plan: AdoptionPlan) -> dict[str, Any]:
    """Return a MemoryIndex for the table; how its database is reached, and the model's source, are not in it."""
    columns = {resource_name(name): source for name, source in _columns(plan.names).items()}
    match columns.get("content"):
        case str(single):
            columns["content"] = [single]
    database: dict[str, Any] = {"name": plan.database.name, "table": plan.request.table}
    if plan.names.all_public:
        database["sensitivity"] = "None"
    if columns:
        database["columns"] = columns
    if plan.names.text_search_configuration:
        database["textSearchConfiguration"] = plan.names.text_search_configuration
    model = plan.request.model
    return {
        "apiVersion": _GROUP_VERSION,
        "kind": "MemoryIndex",
        "metadata": {"name": object_name(plan.table.name)},
        "spec": {"database": database, "embedding": {"model": model.name, "dimensions": model.dimensions}},
    }


def yaml_lines(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of a document of mappings, lists of texts, texts and numbers."""
    for name, found in value.items():
        if isinstance(found, Mapping):
            yield f"{indent}{name}:"
            yield from yaml_lines(found, indent + "  ")
        else:
            yield f"{indent}{name}: {_scalar(found)}"


def _scalar(value: object) -> str:
    """Return a value in the form of JSON, which YAML reads, too; a plain word as it is."""
    plain = isinstance(value, str) and value.replace("-", "").replace("_", "").isalnum() and value[0].isalpha()
    if plain and str(value).lower() not in {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}:
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _columns(names: ColumnNames) -> dict[str, str | list[str]]:
    """Return what differs from our names, as a person gives it; "" says that there is no such column."""
    written = dict[str, str | list[str]]()
    for name, sources in names.sources.items():
        parts = [str(source) for source in sources]
        ours = name == "search_vector" and names.has_own_search_column
        if not ours and not (name == "is_sensitive" and not parts):
            written[name] = parts if len(parts) > 1 else "".join(parts)
    if names.embedding != EMBEDDING:
        written[EMBEDDING] = names.embedding
    return written


def object_name(table: str) -> str:
    """Return the table's name as a name of a MemoryIndex: at most 40 letters, digits and hyphens, a letter first."""
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in table.lower()).strip("-")
    named = letters if letters[:1].isalpha() else f"m-{letters}"
    return named[:_LONGEST_NAME].strip("-") if letters else "memories"
