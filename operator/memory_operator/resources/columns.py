"""Translate the names of columns in a MemoryIndex into those that the library and its commands take."""

import json

from memory_operator.api.spec import MemoryIndex
from memory_recall.schema.columns.names import ColumnNames

_OF_SENSITIVITY = "is_sensitive"


def column_names(index: MemoryIndex) -> ColumnNames:
    """Return the names of the columns of the table of memories.

    Raises:
        InvalidConfiguration: a name cannot be used; the message names all such names.
    """
    configuration = index.spec.database.text_search_configuration
    return ColumnNames.parse(_given(index), all_public=_all_public(index), text_search_configuration=configuration)


def column_settings(index: MemoryIndex) -> dict[str, str]:
    """Return the environment variables of a migration about the table; "" stands for none."""
    given = _given(index)
    return {
        "MEMORY_COLUMNS": json.dumps(given, ensure_ascii=False) if given else "",
        "MEMORY_SENSITIVITY": "none" if _all_public(index) else "",
        "MEMORY_TEXT_SEARCH_CONFIGURATION": index.spec.database.text_search_configuration or "",
    }


def _given(index: MemoryIndex) -> dict[str, str | list[str]]:
    given = index.spec.database.columns.model_dump(mode="json", exclude_none=True)
    return {_OF_SENSITIVITY if name == "sensitive" else name: source for name, source in given.items()}


def _all_public(index: MemoryIndex) -> bool:
    return index.spec.database.sensitivity == "None"
