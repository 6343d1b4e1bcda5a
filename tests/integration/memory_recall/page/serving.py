"""The page in the test's own process, without a database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memory_recall.contrib.local_page.server import serve_locally
from memory_recall.contrib.page.app import Views, page_app
from memory_recall.contrib.page.judging import Judging
from memory_recall.errors import DatabaseUnreachable
from memory_recall.search.options import RecallOptions
from memory_recall.search.recall import Recall, Recalled, Request
from memory_recall.search.sql.visibility import EVERYONE
from memory_recall.status import DatabaseFacts

AWAY = DatabaseUnreachable("The database does not answer.", "Start it.")


class AwayRecall(Recall):
    """A recall whose database is away."""

    def __init__(self) -> None:
        super().__init__(RecallOptions(), 0.0)

    pools = ()

    async def answer(self, request: Request) -> Recalled:  # noqa: ARG002 - as a recall has it
        raise AWAY


async def _away() -> DatabaseFacts:
    raise AWAY


@asynccontextmanager
async def served(*, judging: Judging | None = None) -> AsyncIterator[tuple[str, asyncio.Task[None]]]:
    """The page's address, and the server, which ends with the block if it has not ended by then."""
    addresses: asyncio.Queue[str] = asyncio.Queue()
    views = Views(AwayRecall(), EVERYONE, _away, judging)
    server = asyncio.create_task(
        serve_locally(lambda stop: page_app(views, stop=stop), port=0, announce=addresses.put_nowait)
    )
    try:
        yield await addresses.get(), server
    finally:
        server.cancel()
        await asyncio.wait({server})
