"""Says what can become of vectors that a table had before it is adopted."""

from memory_recall.embedding.profiles import ModelProfile
from memory_recall.schema.table import EMBEDDING_COLUMN, MemoryTable, quoted_if_needed

_VECTORS = ("vector", "halfvec", "sparsevec", "bit")


def vector_columns_of_others(table: MemoryTable) -> list[str]:
    """Return the columns of vectors that have another name than ours; nothing becomes of them."""
    return [
        name
        for name, kind in table.catalog.items()
        if kind.rpartition(".")[2] in _VECTORS[:3] and name != EMBEDDING_COLUMN
    ]


def existing_vector_ways(table: MemoryTable, model: ModelProfile) -> list[str]:
    """Return the ways in which a column with the name of ours can be dealt with; nothing where there is none.

    `model` is the one whose vectors are to be in it.
    """
    kind = table.catalog.get(EMBEDDING_COLUMN)
    if kind is None:
        return []
    where, size = table.qualified, table.embedding_dimensions
    written = f"{kind}({size})" if size and size > 0 else kind
    away = (
        f"Otherwise make room for ours: ALTER TABLE {where} RENAME COLUMN {EMBEDDING_COLUMN} TO "
        f"{quoted_if_needed(EMBEDDING_COLUMN + '_before')}; or ALTER TABLE {where} DROP COLUMN {EMBEDDING_COLUMN}; "
        "Programs that name the column have to follow."
    )
    lines = [f"{EMBEDDING_COLUMN} is {written}, and our vectors have this name."]
    if kind.rpartition(".")[2] not in {"vector", "halfvec"} or size not in {model.dimensions, -1, None}:
        return [*lines, f"It cannot hold vectors of {model.name}, which have {model.dimensions:,} dimensions.", away]
    wanted = table.vector_type(model.dimensions)
    keep = f"If {model.name} made every vector from the present text: "
    if kind.rpartition(".")[2] == "vector" or size != model.dimensions:
        keep += (
            f"ALTER TABLE {where} ALTER COLUMN {EMBEDDING_COLUMN} TYPE {wanted} USING {EMBEDDING_COLUMN}::{wanted}; "
            "which rewrites the table under a lock, then "
        )
    keep += "memory migrate --existing-vectors keep. A program that writes the column goes on writing it."
    discard = "Or memory migrate --existing-vectors discard, if nobody else reads them." if "halfvec" in kind else ""
    return [*lines, keep, *([discard] if discard else []), away]
