"""Labels belong to one table of one database, so that another one cannot make their memories look deleted.

Where a memory is missing, the question that was written for it is removed. In another database all of them would be
missing, and everything that the person has written and judged would be lost.
"""

from typing import Protocol

from memory_recall.contrib.labelling.label_file import LabelFile
from memory_recall.contrib.labelling.labels import Origin
from memory_recall.errors import InvalidInput
from memory_recall.schema.columns.keys import MemoryId

_ANOTHER = "Correct MEMORY_DATABASE_URL and MEMORY_TABLE, so that they lead to the memories that were labelled."


class LabelledStore(Protocol):
    """The store of memories, with what decides whether labels belong to it."""

    async def origin(self) -> Origin:
        """Return the table and the database that hold the memories."""
        ...

    async def count_existing(self, ids: list[MemoryId]) -> int:
        """Return how many memories with these ids the table has, those that may not be shown among them."""
        ...


async def require_origin(file: LabelFile, store: LabelledStore) -> None:
    """Refuse labels of another table or database; record the present one in labels that name none yet.

    Raises:
        InvalidInput: the labels belong to another table or database, or name none and most of their memories are
            missing in this one; nothing was changed.
        DatabaseUnreachable, DatabaseRejected: the database does not answer, or refuses to say which it is.
    """
    present, recorded = await store.origin(), file.labels.origin
    if recorded is None:
        await _require_most_exist(file, store, present)
        file.save(file.labels.with_origin(present))
    elif not recorded.may_be(present):
        raise InvalidInput(
            f"The labels in {file.path} are about the memories of {recorded}, and these are those of {present}; "
            "nothing was changed.",
            f"{_ANOTHER} If the same memories, with their ids, are here now, remove the field `origin` from the file.",
        )


async def _require_most_exist(file: LabelFile, store: LabelledStore, present: Origin) -> None:
    """Refuse a table in which more than half of the labelled memories are missing.

    Raises:
        InvalidInput: the table is such a one.
    """
    ids = sorted(file.labels.mentioned, key=str)
    existing = await store.count_existing(ids)
    if 2 * existing < len(ids):
        raise InvalidInput(
            f"Of the {len(ids):,} memories that the labels in {file.path} are about, {len(ids) - existing:,} are not "
            f"in {present}; nothing was changed.",
            f"{_ANOTHER} If most of these memories were deleted, collect questions anew in another file.",
        )
