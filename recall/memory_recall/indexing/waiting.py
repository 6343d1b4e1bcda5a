"""Waiting: for an embedder that is still loading when a worker starts, and between one piece of work and the next."""

import asyncio
import contextlib
import time

from memory_recall.errors import EmbedderUnavailable
from memory_recall.indexing.document_embedder import DescribedEmbedder
from memory_recall.indexing.worker_session import OutageListener
from memory_recall.schema.models_sql import ServedModel

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0


async def until_served(embedder: DescribedEmbedder, listener: OutageListener, limit: float) -> ServedModel:
    """What the embedder serves, once it answers.

    Raises:
        EmbedderUnavailable: it did not answer within the limit.
    """
    began = time.monotonic()
    pause = _FIRST_PAUSE
    waiting = False
    while True:
        try:
            info = await embedder.model_info()
        except EmbedderUnavailable as error:
            if time.monotonic() - began > limit:
                raise
            if not waiting:
                listener.outage_began("embedder", error)
            waiting = True
        else:
            if waiting:
                listener.outage_ended("embedder", time.monotonic() - began)
            return ServedModel(info.name, info.dimensions, info.digest)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


async def sleep_unless(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, but no longer than until `stop` is set."""
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
