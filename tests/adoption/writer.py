"""`python writer.py PROGRAM DSN EMBEDDER TEXT...`: writes texts with a program's own store, and prints what it finds.

It runs in an environment that has the programs and nothing of this project. Their vectors are those of the embedder at
the address EMBEDDER, as they would be with an embedding service of the user's.
"""

import hashlib
import json
import sys
import urllib.request
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

DIMENSIONS = 384
Vectors = Callable[[list[str]], list[list[float]]]


def vectors_from(address: str) -> Vectors:
    """Return a function that computes vectors with the service at this address."""

    def vectors(texts: list[str]) -> list[list[float]]:
        body = json.dumps({"input": texts, "model": "all-MiniLM-L6-v2", "encoding_format": "float"}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{address}/v1/embeddings", body, headers)  # noqa: S310  (our own embedder)
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  (as above)
            return [one["embedding"] for one in json.load(answer)["data"]]

    return vectors


def mem0(dsn: str, vectors: Vectors, texts: list[str]) -> str:
    """Write as mem0's memory does through its store for pgvector."""
    from mem0.vector_stores.pgvector import PGVector

    store = PGVector(
        dbname=None, collection_name="mem0", embedding_model_dims=DIMENSIONS, user=None, password=None, host=None,
        port=None, diskann=False, hnsw=True, connection_string=dsn,
    )  # fmt: skip
    payloads = [
        {
            "data": text, "user_id": "ana", "hash": hashlib.sha256(text.encode()).hexdigest(),
            "text_lemmatized": text.lower(), "created_at": "2026-03-01T10:00:00-07:00",
        }
        for text in texts
    ]  # fmt: skip
    store.insert(vectors(texts), payloads, [str(uuid.uuid4()) for _ in texts])
    return store.search(texts[0], vectors(texts)[0], top_k=1)[0].payload["data"]


def _langchain_embeddings(vectors: Vectors) -> Any:
    from langchain_core.embeddings import Embeddings

    class Service(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return vectors(texts)

        def embed_query(self, text: str) -> list[float]:
            return vectors([text])[0]

    return Service()


def langchain(dsn: str, vectors: Vectors, texts: list[str]) -> str:
    """Write into LangChain's own tables, with a column of vectors that has the name of ours."""
    from langchain_postgres import PGVector

    store = PGVector(
        embeddings=_langchain_embeddings(vectors), collection_name="notes", create_extension=False,
        connection=dsn.replace("postgresql://", "postgresql+psycopg://"),
    )  # fmt: skip
    store.add_texts(texts, metadatas=[{"user_id": "ana"} for _ in texts])
    return store.similarity_search(texts[0], k=1)[0].page_content


def langchain_table(dsn: str, vectors: Vectors, texts: list[str]) -> str:
    """Write into a table of LangChain's newer store, whose column of vectors has a name of its own."""
    from langchain_postgres import PGEngine, PGVectorStore
    from sqlalchemy.exc import ProgrammingError

    engine = PGEngine.from_connection_string(dsn.replace("postgresql://", "postgresql+psycopg://"))
    columns = {"table_name": "langchain_notes", "embedding_column": "langchain_embedding"}
    with suppress(ProgrammingError):  # it is there
        engine.init_vectorstore_table(vector_size=DIMENSIONS, **columns)
    store = PGVectorStore.create_sync(engine, _langchain_embeddings(vectors), **columns)
    store.add_texts(texts, metadatas=[{"user_id": "ana"} for _ in texts])
    return store.similarity_search(texts[0], k=1)[0].page_content


def llamaindex(dsn: str, vectors: Vectors, texts: list[str]) -> str:
    """Write into LlamaIndex' table, with its own search column."""
    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores import VectorStoreQuery
    from llama_index.vector_stores.postgres import PGVectorStore
    from sqlalchemy.engine import make_url

    url = make_url(dsn)
    store = PGVectorStore.from_params(
        database=url.database, host=url.host, password=url.password, port=url.port, user=url.username,
        table_name="llamaindex", embed_dim=DIMENSIONS, hybrid_search=True,
    )  # fmt: skip
    pairs = zip(texts, vectors(texts), strict=True)
    store.add([TextNode(text=text, metadata={"owner": "ana"}, embedding=vector) for text, vector in pairs])
    found = store.query(VectorStoreQuery(query_embedding=vectors(texts[:1])[0], similarity_top_k=1))
    return found.nodes[0].get_content()


WRITERS = {"mem0": mem0, "langchain": langchain, "langchain-table": langchain_table, "llamaindex": llamaindex}

if __name__ == "__main__":
    _, program, dsn, embedder, *texts = sys.argv
    sys.stdout.write(WRITERS[program](dsn, vectors_from(embedder), texts) + "\n")
