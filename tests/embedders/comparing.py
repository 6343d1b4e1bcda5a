"""Run in a pod: prints the cosine of a query's vector from a server to our own embedder's, with and without prefix."""

import asyncio
import json
import sys

import numpy as np

from memory_recall import EmbedderApi, EmbedderClient, EmbedderOptions, ExternalEmbedder

QUERY = "how do I keep the kettle free of limescale?"


async def compare(url: str, model: str, served_as: str, reference: str) -> dict[str, float]:
    """Return the cosines by whether the client put the prefix before the query."""
    async with EmbedderClient(reference, model) as own:
        wanted = await own.embed_query(QUERY)
    found = {}
    for name, prefix in (("with", None), ("without", "")):
        options = EmbedderOptions(EmbedderApi.OPENAI, served_as, query_prefix=prefix)
        async with ExternalEmbedder(url, model, options=options) as other:
            vector = await other.embed_query(QUERY)
        found[name] = float(np.dot(vector, wanted) / np.linalg.norm(vector) / np.linalg.norm(wanted))
    return found


sys.stdout.write(json.dumps(asyncio.run(compare(*sys.argv[1:]))) + "\n")
