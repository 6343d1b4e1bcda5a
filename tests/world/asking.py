"""Run in a pod: has the embedder embed a word, verified by the certificates on standard input; prints what came of it.

The environment is that of the `memory` command. The output is `embedded`, or the error.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from memory_recall import EmbedderClient
from memory_recall.errors import MemoryIndexError


async def ask(authorities: Path) -> str:
    """Return what came of one question over a new connection."""
    url, model = os.environ["MEMORY_EMBEDDER_URL"], os.environ["MEMORY_MODEL"]
    try:
        async with EmbedderClient(url, model, ca_file=authorities) as client:
            await client.embed_query("kettle")
    except MemoryIndexError as error:
        return f"{type(error).__name__}: {error}"
    return "embedded"


with tempfile.NamedTemporaryFile("w", suffix=".crt") as file:
    file.write(sys.stdin.read())
    file.flush()
    sys.stdout.write(asyncio.run(ask(Path(file.name))) + "\n")
