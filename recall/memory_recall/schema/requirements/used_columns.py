"""The columns of a table must be of types that we can use, and its rows such that triggers and indexes reach them."""

from collections.abc import Iterator

from memory_recall.schema.columns.used import USED_COLUMNS, Need, UsedColumn
from memory_recall.schema.partitions import partition_faults
from memory_recall.schema.requirements.faults import Fault, require_none
from memory_recall.schema.table import EMBEDDING_COLUMN, MemoryTable

_VECTORS = ("halfvec", "vector")


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


def column_faults(table: MemoryTable, *needs: Need) -> list[Fault]:
    """Return what is wrong with the columns of an existing table for somebody with these needs.

    Where anything is wrong, a column that recalls need is named as well, so that a person adds all at once.
    """
    if not table.exists:
        return []
    faults = [fault for used in USED_COLUMNS for fault in _faults(table, used, needs)]
    faults += _vector_faults(table)
    if not faults or Need.RECALL in needs:
        return faults
    return column_faults(table, *needs, Need.RECALL)


def _faults(table: MemoryTable, used: UsedColumn, needs: tuple[Need, ...]) -> Iterator[Fault]:
    kind, where = table.columns.get(used.name), f"{table.qualified}"
    column = f"Column {used.name} of {where}"
    if kind is None:
        if used.need in needs:
            yield Fault(
                f"{where} has no column {used.name}. {used.purpose}",
                f"ALTER TABLE {where} ADD COLUMN {used.name} {used.adding};",
            )
        return
    if kind not in used.types and not any(source.path for source in table.names.of(used.name)):
        usual = used.types[0]
        yield Fault(
            f"{column} is {kind}, not {_listed(used.types)}.",
            f"ALTER TABLE {where} ALTER COLUMN {used.name} TYPE {usual} USING {_converted(used, kind)}; "
            "or, if it means something else, rename it.",
        )
    generated = table.generated.get(used.name)
    if generated is not None and generated not in used.generated:
        yield Fault(
            f"{column} is a generated column ({generated}), which is computed after the rules have read it.",
            f"ALTER TABLE {where} ALTER COLUMN {used.name} DROP EXPRESSION; and let a trigger keep it up to date."
            if generated == "stored"
            else f"ALTER TABLE {where} DROP COLUMN {used.name}, ADD COLUMN {used.name} {used.adding}; and let a trigger keep it up "
            "to date.",
        )
    if used.nullable and used.name in table.not_null:
        yield Fault(
            f"{column} is NOT NULL, so every memory counts as deleted.",
            f"ALTER TABLE {where} ALTER COLUMN {used.name} DROP NOT NULL, ALTER COLUMN {used.name} DROP DEFAULT; and "
            "set it to NULL in each row that is not deleted.",
        )


def _listed(types: tuple[str, ...]) -> str:
    return types[0] if len(types) == 1 else f"{', '.join(types[:-1])} or {types[-1]}"


def _converted(used: UsedColumn, kind: str) -> str:
    """Return SQL for the value of the usual type that belongs to a value of the type that the column has."""
    name, usual = used.name, used.types[0]
    if usual == "timestamp with time zone" and kind == "boolean":
        return f"CASE WHEN {name} THEN now() END"
    if usual == "timestamp with time zone" and kind in {"double precision", "real", "numeric", "integer", "bigint"}:
        return f"CASE WHEN {name} > 0 THEN to_timestamp({name}) END"
    if kind == "bytea" and usual == "text":
        return f"convert_from({name}, 'UTF8')"
    if kind.endswith("[]") and usual == "text":
        return f"array_to_string({name}, ',')"
    if usual == "tsvector":
        return f"to_tsvector('english', {name}::text)"
    return f"{name}::{usual}"


def _vector_faults(table: MemoryTable) -> list[Fault]:
    kind = table.catalog.get(EMBEDDING_COLUMN)
    name = None if kind is None else kind.rpartition(".")[2]
    if name in {None, "halfvec"}:
        return []
    size = table.embedding_dimensions
    wanted = table.vector_type(size if size and size > 0 else None)
    remedy = (
        f"ALTER TABLE {table.qualified} ALTER COLUMN {EMBEDDING_COLUMN} TYPE {wanted} "
        f"USING {EMBEDDING_COLUMN}::{wanted};"
        if name == "vector"
        else f"ALTER TABLE {table.qualified} RENAME COLUMN {EMBEDDING_COLUMN} TO {EMBEDDING_COLUMN}_before;"
    )
    return [Fault(f"Column {EMBEDDING_COLUMN} of {table.qualified} is {kind}, not halfvec.", remedy)]


def shape_faults(table: MemoryTable) -> list[Fault]:
    """Return why triggers or indexes would not reach each row of an existing relation.

    It may be a view or a foreign table, or tables inherit from it. Or it is partitioned, and not every partition is an
    ordinary table, or no index begins with `id`.
    """
    if not table.exists:
        return []
    if table.is_partitioned:
        faults = partition_faults(table.qualified, table.partitions)
        if "id" in table.columns and not table.id_indexed:
            faults.append(
                Fault(
                    f"Table {table.qualified} is partitioned and has no index that begins with id.",
                    f"CREATE INDEX ON {table.qualified} (id), or begin the primary key with id.",
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
