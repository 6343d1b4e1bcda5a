"""An embedding server for one of the light models: `python -m memory_bench.swap.embedder NAME PORT`."""

import base64
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI

from memory_bench.swap.models import DIMENSIONS, MODELS, LightModel


def application(model: LightModel) -> FastAPI:
    """Return an ASGI application that serves a light model on `POST /v1/embeddings` and `GET /v1/models`."""
    app = FastAPI()

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"data": [{"id": model.name, "dimensions": DIMENSIONS, "digest": model.digest}]}

    @app.post("/v1/embeddings")
    async def embeddings(body: dict[str, Any]) -> dict[str, Any]:
        texts = body["input"]
        data = [
            {"index": at, "embedding": base64.b64encode(model.vector(text).astype("<f4").tobytes()).decode()}
            for at, text in enumerate(texts)
        ]
        return {
            "data": data,
            "digest": model.digest,
            "usage": {"total_tokens": sum(len(text.split()) for text in texts)},
        }

    return app


if __name__ == "__main__":
    uvicorn.run(application(MODELS[sys.argv[1]]), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
