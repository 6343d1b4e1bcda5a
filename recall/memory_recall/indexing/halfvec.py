"""Vectors on the wire: pgvector's binary format for halfvec, a whole batch at a time.

One conversion to big-endian half precision for the batch and one slice a row cost a tenth of what building a list of
Python objects costs. The codec therefore takes bytes that are in the wire format already.
"""

import struct

import numpy as np
import numpy.typing as npt

from memory_recall.errors import EmbedderBroken
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated


def encode_halfvecs(vectors: npt.NDArray[np.float32]) -> list[bytes]:
    """Each row of the matrix in the wire format.

    Raises:
        EmbedderBroken: a number is not finite or too large for half precision.
    """
    with np.errstate(over="ignore"):
        halves = np.ascontiguousarray(vectors).astype(">f2")
    if not np.isfinite(halves).all():
        raise EmbedderBroken("A vector holds a number that half precision cannot.", "Check the embedder's model.")
    header = struct.pack(">HH", vectors.shape[1], 0)
    size = halves.shape[1] * 2
    flat = halves.tobytes()
    return [header + flat[start : start + size] for start in range(0, len(flat), size)]


def decode_halfvec(data: bytes) -> npt.NDArray[np.float32]:
    """A vector from the wire format."""
    return np.frombuffer(data, dtype=">f2", offset=4).astype(np.float32)


async def register(connection: Connection, schema: str) -> None:
    """Teach a connection the type halfvec, in the schema where pgvector lives."""
    with translated("registering the vector type"):
        await connection.set_type_codec(
            "halfvec", schema=schema, encoder=bytes, decoder=decode_halfvec, format="binary"
        )
