"""Reads and records the embedding models of a table, and compares them with the models that embedders serve."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from memory_recall.embedding.canary import Canary, may_be_same_file
from memory_recall.embedding.profiles import ModelProfile
from memory_recall.embedding.served_model import ServedModel
from memory_recall.errors import DimensionMismatch, ModelMismatch
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable

# A recall may be newer than the schema, before which there was no usual cosine.
RECORDED_COLUMNS = (
    "m.id, m.name, m.digest, m.dimensions, m.pooling, m.embedder_url, "
    "(to_jsonb(m) ->> 'usual_cosine')::float8 AS usual_cosine"
)
"""The columns of a row `m` of memory_index_models."""


@dataclass(frozen=True)
class RecordedModel:
    """A model as the database records it; the first backfill adds the digest of its weights.

    `usual_cosine` (-1 to below 1) is the median cosine of the nearest memory to everyday prompts, to which none fits;
    None until a worker has found it.
    """

    id: int
    name: str
    digest: str | None
    dimensions: int
    embedder_url: str | None = None
    pooling: str | None = None
    usual_cosine: float | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Make a model from a row that has the columns RECORDED_COLUMNS."""
        return cls(
            row["id"],
            row["name"],
            row["digest"],
            row["dimensions"],
            row["embedder_url"],
            row["pooling"],
            row["usual_cosine"],
        )

    def describes(self, model: ModelProfile) -> bool:
        """Return whether this is the record of a model of that name and length."""
        return (self.name, self.dimensions) == (model.name, model.dimensions)

    def served_by(self, served: ServedModel) -> bool:
        """Return whether an embedder serves this model with the same weights, so that its vectors are comparable."""
        try:
            self.require_same(served)
        except (ModelMismatch, DimensionMismatch):
            return False
        return True

    def require_same(self, served: ServedModel) -> None:
        """Refuse an embedder whose vectors are not comparable with the stored ones.

        Raises:
            ModelMismatch: the embedder serves a model of another name or with other weights.
            DimensionMismatch: the embedder's vectors have another number of dimensions.
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
        self.require_file(served.digest)

    def require_file(self, digest: str | None) -> None:
        """Refuse a model file whose digest differs from the recorded digest; nothing is compared if either is unknown.

        The digest of an embedder that names no file is the canary of its model.

        Raises:
            ModelMismatch: the digests differ.
        """
        if may_be_same_file(self.digest, digest):
            return
        if Canary.parse(digest or "") is not None:
            raise ModelMismatch(
                f"The embedder's {self.name} gives other vectors than the one that the rows were embedded with: it is "
                "another model, or has another pooling, prefix or precision.",
                "Serve the same weights in the same way, or swap models.",
            )
        raise ModelMismatch(
            f"The embedder's {self.name} has digest {digest}; the vectors were made with {self.digest}.",
            "Serve the same weights in the same way, or swap models.",
        )


@dataclass(frozen=True)
class Roles:
    """The active model, which recalls use, and the next model, which an open swap prepares; each may be None."""

    active: RecordedModel | None
    next: RecordedModel | None


async def read_roles(connection: AnyConnection, table: MemoryTable) -> Roles:
    """Read the active and the next model in one statement."""
    with translated("reading the models' roles"):
        rows = await connection.fetch(
            f"SELECT m.id = s.active_model AS active, {RECORDED_COLUMNS} FROM {table.own('memory_index_state')} s "
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


async def record_address(connection: AnyConnection, table: MemoryTable, model_id: int, url: str | None) -> None:
    """Record the address of a model's memory-embedder, for memory servers after a swap, or that it has none."""
    with translated("recording the embedder's address"):
        await connection.execute(
            f"UPDATE {table.own('memory_index_models')} SET embedder_url = $2 "
            "WHERE id = $1 AND embedder_url IS DISTINCT FROM $2",
            model_id,
            url,
        )


async def replace_digest(
    connection: AnyConnection, table: MemoryTable, model_id: int, former: str | None, digest: str
) -> None:
    """Record another digest or canary of a model's file, if the former one is still what is recorded."""
    with translated("recording the model's digest"):
        await connection.execute(
            f"UPDATE {table.own('memory_index_models')} SET digest = $2 "
            "WHERE id = $1 AND digest IS NOT DISTINCT FROM $3",
            model_id,
            digest,
            former,
        )


async def require_active(connection: AnyConnection, table: MemoryTable, model: RecordedModel) -> None:
    """Check that a model is still the active one.

    Raises:
        ModelMismatch: a swap has made another model the active one.
    """
    active = await active_model(connection, table)
    if active.id != model.id:
        raise ModelMismatch(
            f"{active.name} took the place of {model.name} meanwhile; rows without a vector need its embedder.",
            "memory sync turns to it by itself; a backfill needs MEMORY_MODEL and MEMORY_EMBEDDER_URL of that model.",
        )


async def confirm_model(connection: AnyConnection, table: MemoryTable, served: ServedModel) -> RecordedModel:
    """Return the active model, provided that the embedder serves it; record the weights' digest if none is recorded.

    Raises:
        ModelMismatch, DimensionMismatch: the embedder does not serve the active model.
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
