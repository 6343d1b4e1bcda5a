"""The recorded models: which one the vectors are of, and whether an embedder serves that very one."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from memory_recall.embedding.wire import ServedModel
from memory_recall.errors import DimensionMismatch, ModelMismatch
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable


@dataclass(frozen=True)
class RecordedModel:
    """A model as the database records it; the first backfill adds the digest of its weights."""

    id: int
    name: str
    digest: str | None
    dimensions: int
    embedder_url: str | None = None
    pooling: str | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `memory_index_models`; a schema older than swaps has no `embedder_url`."""
        return cls(row["id"], row["name"], row["digest"], row["dimensions"], row["embedder_url"], row["pooling"])

    def served_by(self, served: ServedModel) -> bool:
        """Tell whether an embedder's vectors are comparable with the stored ones."""
        try:
            self.require_same(served)
        except (ModelMismatch, DimensionMismatch):
            return False
        return True

    def require_same(self, served: ServedModel) -> None:
        """Refuse an embedder whose vectors are not comparable with the stored ones.

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


@dataclass(frozen=True)
class Roles:
    """The model that recalls use, and the one that an open swap puts in its place."""

    active: RecordedModel | None
    next: RecordedModel | None


async def read_roles(connection: AnyConnection, table: MemoryTable) -> Roles:
    """Read both roles at one moment."""
    with translated("reading the models' roles"):
        rows = await connection.fetch(
            "SELECT m.id = s.active_model AS active, m.id, m.name, m.digest, m.dimensions, "
            f"m.pooling, to_jsonb(m) ->> 'embedder_url' AS embedder_url FROM {table.own('memory_index_state')} s "
            f"JOIN {table.own('memory_index_models')} m ON m.id IN (s.active_model, s.next_model)"
        )
    found = {row["active"]: RecordedModel.from_row(dict(row)) for row in rows}
    return Roles(found.get(True), found.get(False))


async def active_model(connection: AnyConnection, table: MemoryTable) -> RecordedModel:
    """Read the active model.

    Raises:
        ModelMismatch: no model is active.
    """
    active = (await read_roles(connection, table)).active
    if active is None:
        raise ModelMismatch("No model is active.", "Run memory migrate.")
    return active


async def record_address(connection: AnyConnection, table: MemoryTable, model_id: int, url: str) -> None:
    """Record where a model is served, for API pods that have to find its embedder after a flip."""
    with translated("recording the embedder's address"):
        known = await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'embedder_url')",
            table.own("memory_index_models"),
        )
        if not known:  # a schema from before there were swaps
            return
        await connection.execute(
            f"UPDATE {table.own('memory_index_models')} SET embedder_url = $2 "
            "WHERE id = $1 AND embedder_url IS DISTINCT FROM $2",
            model_id,
            url,
        )


async def require_active(connection: AnyConnection, table: MemoryTable, model: RecordedModel) -> None:
    """Refuse to go on for a model that a swap has replaced.

    Raises:
        ModelMismatch: another model has become the active one.
    """
    active = await active_model(connection, table)
    if active.id != model.id:
        raise ModelMismatch(
            f"{active.name} took the place of {model.name} meanwhile; rows without a vector need its embedder.",
            "memory sync turns to it by itself; a backfill needs MEMORY_MODEL and MEMORY_EMBEDDER_URL of that model.",
        )


async def confirm_model(connection: AnyConnection, table: MemoryTable, served: ServedModel) -> RecordedModel:
    """Compare the embedder with the active model and, the first time, record the digest of its weights.

    Raises:
        ModelMismatch, DimensionMismatch: it does not serve the active model.
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
