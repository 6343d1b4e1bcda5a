"""Run with the clients installed: `asking.py CLIENT URL MODEL` has a client ask with its defaults; prints a vector.

A reranker's client prints the order that it got. Each is used as its documentation shows it for a server of one's own.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from clients import CLIENTS, RERANKERS, TEXT

OTHER = "Bread needs an hour to rise."
KEY = "any"


def openai_blocking(url: str, model: str) -> Any:
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key=KEY)
    return client.embeddings.create(model=model, input=[TEXT, OTHER]).data[0].embedding


def openai_async(url: str, model: str) -> Any:
    from openai import AsyncOpenAI

    async def ask() -> Any:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
            return (await client.embeddings.create(model=model, input=TEXT)).data[0].embedding

    return asyncio.run(ask())


def langchain(url: str, model: str) -> Any:
    from langchain_openai import OpenAIEmbeddings

    # It sends token ids of OpenAI's models otherwise; the answer to these says so.
    client = OpenAIEmbeddings(model=model, base_url=f"{url}/v1", api_key=KEY, check_embedding_ctx_length=False)
    return client.embed_documents([TEXT, OTHER])[0]


def llama_index(url: str, model: str) -> Any:
    from llama_index.embeddings.openai import OpenAIEmbedding

    return OpenAIEmbedding(model_name=model, api_base=f"{url}/v1", api_key=KEY).get_text_embedding(TEXT)


def litellm_embedding(url: str, model: str) -> Any:
    import litellm

    return litellm.embedding(f"openai/{model}", [TEXT], api_base=f"{url}/v1", api_key=KEY).data[0]["embedding"]


def haystack(url: str, model: str) -> Any:
    from haystack.components.embedders import OpenAITextEmbedder
    from haystack.utils import Secret

    client = OpenAITextEmbedder(model=model, api_base_url=f"{url}/v1", api_key=Secret.from_token(KEY))
    return client.run(TEXT)["embedding"]


def mem0(url: str, model: str) -> Any:
    from mem0.configs.embeddings.base import BaseEmbedderConfig
    from mem0.embeddings.openai import OpenAIEmbedding

    config = BaseEmbedderConfig(model=model, api_key=KEY, openai_base_url=f"{url}/v1", embedding_dims=384)
    return OpenAIEmbedding(config).embed(TEXT)


def graphiti(url: str, model: str) -> Any:
    from graphiti_core.embedder.openai import OpenAIEmbedder, OpenAIEmbedderConfig

    config = OpenAIEmbedderConfig(embedding_model=model, api_key=KEY, base_url=f"{url}/v1", embedding_dim=384)
    return asyncio.run(OpenAIEmbedder(config).create([TEXT]))


def pydantic_ai(url: str, model: str) -> Any:
    from pydantic_ai import Embedder
    from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{url}/v1", api_key=KEY)
    client = Embedder(OpenAIEmbeddingModel(model, provider=provider))
    return client.embed_documents_sync([TEXT]).embeddings[0]


def cohere_rerank(url: str, model: str) -> Any:
    import cohere

    client = cohere.ClientV2(api_key=KEY, base_url=url)
    found = client.rerank(model=model, query="When does the backup run?", documents=[OTHER, TEXT])
    return [result.index for result in found.results]


def litellm_rerank(url: str, model: str) -> Any:
    import litellm

    found = litellm.rerank(
        f"cohere/{model}", "When does the backup run?", [OTHER, TEXT], api_base=url, api_key=KEY, top_n=2
    )
    return [result["index"] for result in found.results]


ASK: tuple[Callable[[str, str], Any], ...] = (
    openai_blocking, openai_async, langchain, llama_index, litellm_embedding, haystack, mem0, graphiti, pydantic_ai,
    cohere_rerank, litellm_rerank,
)  # fmt: skip

if __name__ == "__main__":
    os.environ |= {
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "MEM0_TELEMETRY": "False",
        "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    }
    name, address, served = sys.argv[1:]
    ask = dict(zip((*CLIENTS, *RERANKERS), ASK, strict=True))[name]
    found = ask(address, served)
    sys.stdout.write(json.dumps([float(number) for number in found]) + "\n")
