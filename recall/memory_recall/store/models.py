"""The active model: which one the vectors are of, and whether the embedder serves that very one."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.errors import DimensionMismatch, ModelMismatch
from memory_recall.store.connection import AnyConnection
from memory_recall.store.table import MemoryTable
from memory_recall.store.translation import translated


@dataclass(frozen=True)
class ServedModel:
    """What an embedder says of the model that it serves; a hosted one has no digest."""

    name: str
    dimensions: int
    digest: str | None


@dataclass(frozen=True)
class ActiveModel:
    """The model whose vectors the column holds."""

    id: int
    name: str
    dimensions: int
    digest: str | None

    def require_same(self, served: ServedModel) -> None:
        """Refuse an embedder whose vectors would not be comparable with the stored ones.

        Raises:
            ModelMismatch: another name or other weights.
            DimensionMismatch: another number of dimensions.
        """
        if served.name != self.name:
            raise ModelMismatch(
                f"The embedder serves {served.name}; the vectors are of {self.name}.",
                "Point MEMORY_EMBEDDER_URL at the right embedder, or swap models.",
            )
        if served.dimensions != self.dimensions:
            raise DimensionMismatch(
                f"The embedder yields {served.dimensions} dimensions; the column of {self.name} has {self.dimensions}.",
                "Serve the model with the column's dimensions.",
            )
        if self.digest is not None and served.digest is not None and served.digest != self.digest:
            raise ModelMismatch(
                f"The embedder's {served.name} has digest {served.digest}; the vectors were made with {self.digest}.",
                "Serve the same weights, or swap models.",
            )


async def active_model(connection: AnyConnection, table: MemoryTable) -> ActiveModel:
    """The active model as recorded."""
    with translated("reading the active model"):
        row = await connection.fetchrow(
            f"SELECT m.id, m.name, m.dimensions, m.digest FROM {table.own('memory_index_state')} s "
            f"JOIN {table.own('memory_index_models')} m ON m.id = s.active_model"
        )
    if row is None:
        raise ModelMismatch("No model is active.", "Run memory migrate.")
    return ActiveModel(row["id"], row["name"], row["dimensions"], row["digest"])


async def confirm_model(connection: AnyConnection, table: MemoryTable, served: ServedModel) -> ActiveModel:
    """Compare the embedder with the active model and, the first time, record the digest of its weights.

    Raises:
        ModelMismatch, DimensionMismatch: it is not the same model.
    """
    active = await active_model(connection, table)
    active.require_same(served)
    if active.digest is None and served.digest is not None:
        with translated("recording the model's digest"):
            await connection.execute(
                f"UPDATE {table.own('memory_index_models')} SET digest = $2 WHERE id = $1 AND digest IS NULL",
                active.id,
                served.digest,
            )
        active = await active_model(connection, table)
        active.require_same(served)
    return active
