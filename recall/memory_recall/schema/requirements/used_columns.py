"""The columns of a table must be of types that we can use, and its rows such that triggers and indexes reach them."""

from collections.abc import Iterator

from memory_recall.schema.columns.names import (
    EMBEDDING,
    OTHER_EMBEDDING,
    OUR_NAMES,
    OWN_SEARCH_COLUMN,
    ColumnNames,
    ColumnSource,
)
from memory_recall.schema.columns.used import USED_COLUMNS, Need, UsedColumn
from memory_recall.schema.partitions import partition_faults
from memory_recall.schema.requirements.faults import Fault, require_none
from memory_recall.schema.table import ACTIVE, MemoryTable, quoted_if_needed

_DOCUMENTS = ("jsonb", "json")
_ANEW = (
    "Go back to what is recorded; or remove what was added, the vectors too, with memory migrate --to base --yes, and "
    "migrate anew."
)


def require_columns(table: MemoryTable) -> None:
    """Refuse an existing table with columns that are missing or cannot be used, and name all of them.

    Raises:
        SchemaUnsupported: there is such a column.
    """
    require_none(column_faults(table, Need.ALWAYS))


def require_searchable(table: MemoryTable) -> None:
    """Refuse to recall from an existing table that lacks a column which recalls need, or has one of no use.

    Raises:
        SchemaUnsupported: there is such a column.
    """
    require_none(column_faults(table, Need.ALWAYS, Need.RECALL))


def names_faults(table: MemoryTable, wanted: ColumnNames | None) -> list[Fault]:
    """Return why the columns of a table cannot have the purposes that a person names; None names nothing.

    The names are recorded at the first migration, and vectors, triggers and indexes belong to them from then on.
    """
    if wanted is None:
        return []
    if not table.exists and wanted != OUR_NAMES:
        return [
            Fault(
                f"There is no table {table.schema}.{table.name}; memory migrate creates one of its own names.",
                "Create the table first, name another one, or leave MEMORY_COLUMNS out.",
            )
        ]
    chosen, recorded = wanted.text_search_configuration, table.names.text_search_configuration
    faults = []
    if chosen not in {None, recorded}:
        faults.append(
            Fault(
                f"The words of {table.qualified} were made with the text search configuration "
                f"{recorded or table.text_search_configuration}, not with {chosen}.",
                _ANEW,
            )
        )
    if wanted.embedding != table.names.embedding:
        faults.append(
            Fault(
                f"The vectors of {table.qualified} are in the column {table.names.embedding}, as was recorded, not in "
                f"{wanted.embedding}.",
                _ANEW,
            )
        )
    return faults + [
        Fault(
            f"{used.name} of {table.qualified} was recorded as {table.names.written(used.name) or 'absent'}, not as "
            f"{wanted.written(used.name) or 'absent'}.",
            _ANEW,
        )
        for used in USED_COLUMNS
        if table.names.of(used.name) != wanted.of(used.name)
        and not (used.name == "search_vector" and used.name not in wanted.sources and table.names.has_own_search_column)
    ]


def column_faults(table: MemoryTable, *needs: Need) -> list[Fault]:
    """Return what is wrong with the columns of an existing table for somebody with these needs."""
    if not table.exists:
        return []
    return [fault for used in USED_COLUMNS for fault in _faults(table, used, needs)] + vector_faults(table)


def _faults(table: MemoryTable, used: UsedColumn, needs: tuple[Need, ...]) -> Iterator[Fault]:
    sources, where = table.names.of(used.name), table.qualified
    is_ours = sources == (ColumnSource(used.name),)
    if used.name == "search_vector" and table.names.has_own_search_column and OWN_SEARCH_COLUMN not in table.catalog:
        if used.need in needs:
            yield Fault(f"{where} has no search column yet.", "Run memory migrate, which adds one.")
        return
    missing = [quoted_if_needed(source.column) for source in sources if source.column not in table.catalog]
    if missing and is_ours and used.need in needs:
        add = f"ALTER TABLE {where} ADD COLUMN {used.name} {used.adding};"
        if used.name == "is_sensitive":
            add += " Or say that no row is secret: MEMORY_SENSITIVITY=none, in a cluster database.sensitivity: None."
        yield Fault(f"{where} has no column {used.name}. {used.purpose}", add, of_names=True)
    elif missing and not is_ours:
        yield Fault(
            f"{where} has no column {missing[0]}, which is named for {used.name}.",
            f"Correct the name of {used.name}.",
            of_names=True,
        )
    if missing:
        return
    for source in sources:
        if source.path:
            yield from _path_faults(table, used, source)
        else:
            yield from _column_faults(table, used, source.column)


def _path_faults(table: MemoryTable, used: UsedColumn, source: ColumnSource) -> Iterator[Fault]:
    kind = table.catalog[source.column]
    if kind not in _DOCUMENTS:
        yield Fault(
            f"Column {quoted_if_needed(source.column)} of {table.qualified} is {kind}, so it has no value at {source}.",
            f"Name a column of type jsonb or json for {used.name}.",
            of_names=True,
        )
    if source.column in table.generated:
        yield _generated_fault(table, used, source.column)


def _column_faults(table: MemoryTable, used: UsedColumn, name: str) -> Iterator[Fault]:
    kind, where, shown = table.catalog[name], table.qualified, quoted_if_needed(name)
    column = f"Column {shown} of {where}"
    if kind not in used.types:
        conversion = f"TYPE {used.types[0]} USING {_converted(used, shown, kind)}"
        yield Fault(
            f"{column} is {kind}, not {_listed(used.types)}.",
            f"Name a key of it, as {shown}->>'KEY'."
            if kind in _DOCUMENTS and used.at_path
            else f"ALTER TABLE {where} ALTER COLUMN {shown} {conversion};",
            of_names=True,
        )
    if table.generated.get(name) is not None and table.generated[name] not in used.generated:
        yield _generated_fault(table, used, name)
    if used.nullable and name in table.not_null and kind != "boolean":
        yield Fault(
            f"{column} is NOT NULL, so every memory counts as deleted.",
            f"ALTER TABLE {where} ALTER COLUMN {shown} DROP NOT NULL, ALTER COLUMN {shown} DROP DEFAULT; and "
            "set it to NULL in each row that is not deleted.",
        )


def _generated_fault(table: MemoryTable, used: UsedColumn, name: str) -> Fault:
    kind, where, shown = table.generated[name], table.qualified, quoted_if_needed(name)
    return Fault(
        f"Column {shown} of {where} is a generated column ({kind}), which is computed after the rules have read it.",
        f"ALTER TABLE {where} ALTER COLUMN {shown} DROP EXPRESSION; and let a trigger keep it up to date."
        if kind == "stored"
        else f"ALTER TABLE {where} DROP COLUMN {shown}, ADD COLUMN {shown} {used.adding}; and let a trigger keep it up "
        "to date.",
    )


def _listed(types: tuple[str, ...]) -> str:
    return types[0] if len(types) == 1 else f"{', '.join(types[:-1])} or {types[-1]}"


def _converted(used: UsedColumn, name: str, kind: str) -> str:
    """Return SQL for the value of the usual type that belongs to a value of the type that the column `name` has."""
    usual = used.types[0]
    if usual == "timestamp with time zone" and kind in {"double precision", "real", "numeric", "integer", "bigint"}:
        return f"CASE WHEN {name} > 0 THEN to_timestamp({name}) END"
    if kind == "bytea" and usual == "text":
        return f"convert_from({name}, 'UTF8')"
    if kind.endswith("[]") and usual == "text":
        return f"array_to_string({name}, ',')"
    if usual == "tsvector":
        return f"to_tsvector('english', {name}::text)"
    return f"{name}::{usual}"


def vector_faults(table: MemoryTable) -> list[Fault]:
    """Return what is wrong with the type of the column of vectors; nothing where there is none."""
    column = table.vector_name(ACTIVE)
    kind = table.catalog.get(column)
    name = None if kind is None else kind.rpartition(".")[2]
    if name in {None, "halfvec"}:
        return []
    size = table.embedding_dimensions or 0
    wanted = table.vector_type(size)
    remedy = (
        f"Give our vectors another column, so that this one stays as it is: MEMORY_COLUMNS "
        f"""'{{"{EMBEDDING}": "{OTHER_EMBEDDING}"}}' (in a cluster, spec.database.columns)."""
    )
    if name == "vector" and size > 0:  # a column without a length may hold vectors of several
        remedy += (
            f" Or, where the model made what is in it: ALTER TABLE {table.qualified} ALTER COLUMN {column} "
            f"TYPE {wanted} USING {column}::{wanted};"
        )
    return [Fault(f"Column {column} of {table.qualified} is {kind}, not halfvec.", remedy)]


def shape_faults(table: MemoryTable) -> list[Fault]:
    """Return why triggers or indexes would not reach each row of an existing relation.

    It may be a view or a foreign table, or tables inherit from it. Or it is partitioned, and not every partition is an
    ordinary table, or no index begins with `id`.
    """
    if not table.exists:
        return []
    if table.is_partitioned:
        faults = partition_faults(table.qualified, table.partitions)
        key = table.row().id
        if "id" in table.columns and not table.id_indexed:
            faults.append(
                Fault(
                    f"Table {table.qualified} is partitioned and has no index that begins with {key}.",
                    f"CREATE INDEX ON {table.qualified} ({key}), or begin the primary key with {key}.",
                )
            )
        return faults
    if table.has_children:
        return [
            Fault(
                f"Other tables inherit from {table.qualified}; triggers do not reach their rows.",
                "End the inheritance with ALTER TABLE ... NO INHERIT.",
            )
        ]
    if table.kind != "r":
        return [
            Fault(
                f"{table.qualified} is not a table, so it can have neither triggers nor vectors.",
                "Name the table of memories.",
            )
        ]
    return []
