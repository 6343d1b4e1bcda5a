"""Says what can become of vectors that a table had before it is adopted."""

from collections.abc import Sequence
from dataclasses import replace

from memory_recall.embedding.profiles import ModelProfile
from memory_recall.schema.columns.names import EMBEDDING, OTHER_EMBEDDING
from memory_recall.schema.requirements.faults import Fault
from memory_recall.schema.requirements.used_columns import vector_faults
from memory_recall.schema.table import ACTIVE, MemoryTable

_VECTORS = ("vector", "halfvec", "sparsevec", "bit")


def vector_columns_of_others(table: MemoryTable) -> list[str]:
    """Return the columns of vectors that have another name than ours; nothing becomes of them."""
    return [
        name
        for name, kind in table.catalog.items()
        if kind.rpartition(".")[2] in _VECTORS[:3] and name != table.vector_name(ACTIVE)
    ]


def with_vector_ways(faults: Sequence[Fault], table: MemoryTable, model: ModelProfile) -> list[Fault]:
    """Return the faults of a table that is to be adopted, with the ways to deal with its column of vectors.

    A column of other dimensions than the model's is a fault as well.
    """
    message, *ways = existing_vector_ways(table, model) or [""]
    found = vector_faults(table)
    if not found and message and table.embedding_dimensions != model.dimensions:
        return [*faults, Fault(message, " ".join(ways))]
    return [replace(fault, remedy=" ".join(ways)) if fault in found else fault for fault in faults]


def embedding_name(table: MemoryTable, model: ModelProfile) -> str:
    """Return the name that our column of vectors gets: another than usual where such a column cannot hold them."""
    fits = table.embedding_dimensions == model.dimensions and not vector_faults(table)
    return OTHER_EMBEDDING if EMBEDDING in table.catalog and not fits else EMBEDDING


def existing_vector_ways(table: MemoryTable, model: ModelProfile) -> list[str]:
    """Return what a column with the name of ours is, and how it can be dealt with; nothing where there is none.

    `model` is the one whose vectors are to be in it.
    """
    name = table.vector_name(ACTIVE)
    kind = table.catalog.get(name)
    if kind is None:
        return []
    where, size = table.qualified, table.embedding_dimensions
    written = f"{kind}({size})" if size and size > 0 else kind
    away = f"leave it as it is, and give our vectors another column: --column {EMBEDDING}={OTHER_EMBEDDING}."
    lines = [f"{name} is {written}, and our vectors are to be in it."]
    if kind.rpartition(".")[2] not in {"vector", "halfvec"} or size not in {model.dimensions, -1, None}:
        return [
            *lines,
            f"It cannot hold vectors of {model.name}, which have {model.dimensions:,} dimensions.",
            f"So {away}",
        ]
    wanted = table.vector_type(model.dimensions)
    keep = f"If {model.name} made every vector from the present text: "
    if kind.rpartition(".")[2] == "vector" or size != model.dimensions:
        keep += (
            f"ALTER TABLE {where} ALTER COLUMN {name} TYPE {wanted} USING {name}::{wanted}; "
            "which rewrites the table under a lock, then "
        )
    keep += "memory migrate --existing-vectors keep. A program that writes the column goes on writing it."
    discard = "Or memory migrate --existing-vectors discard, if nobody else reads them." if "halfvec" in kind else ""
    return [*lines, keep, *([discard] if discard else []), f"Otherwise {away}"]
