"""The active model: which one the vectors are of, and whether the embedder serves that very one."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass
from typing import Any

from memory_recall.errors import DimensionMismatch, ModelMismatch
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable


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
    embedder_url: str | None = None

    def served_by(self, served: ServedModel) -> bool:
        """Whether an embedder's vectors are comparable with the stored ones."""
        try:
            self.require_same(served)
        except (ModelMismatch, DimensionMismatch):
            return False
        return True

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


_COLUMNS = "m.id, m.name, m.dimensions, m.digest, to_jsonb(m) ->> 'embedder_url' AS embedder_url"


@dataclass(frozen=True)
class Roles:
    """Which model recalls use, and which one a swap is about to put in its place."""

    active: ActiveModel
    next: ActiveModel | None


async def read_roles(connection: AnyConnection, table: MemoryTable) -> Roles:
    """Both roles at one moment.

    Raises:
        ModelMismatch: no model is active.
    """
    with translated("reading the models' roles"):
        rows = await connection.fetch(
            f"SELECT m.id = s.active_model AS active, {_COLUMNS} FROM {table.own('memory_index_state')} s "
            f"JOIN {table.own('memory_index_models')} m ON m.id IN (s.active_model, s.next_model)"
        )
    found = {row["active"]: _model(row) for row in rows}
    if True not in found:
        raise ModelMismatch("No model is active.", "Run memory migrate.")
    return Roles(found[True], found.get(False))


def _model(row: Any) -> ActiveModel:  # noqa: ANN401  (asyncpg's record)
    return ActiveModel(row["id"], row["name"], row["dimensions"], row["digest"], row["embedder_url"])


async def record_address(connection: AnyConnection, table: MemoryTable, model_id: int, url: str) -> None:
    """Write down where a model is served, for API pods that have to find it after a flip."""
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


async def active_model(connection: AnyConnection, table: MemoryTable) -> ActiveModel:
    """The active model as recorded."""
    with translated("reading the active model"):
        row = await connection.fetchrow(
            f"SELECT {_COLUMNS} FROM {table.own('memory_index_state')} s "
            f"JOIN {table.own('memory_index_models')} m ON m.id = s.active_model"
        )
    if row is None:
        raise ModelMismatch("No model is active.", "Run memory migrate.")
    return _model(row)


async def require_active(connection: AnyConnection, table: MemoryTable, model: ActiveModel) -> None:
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
