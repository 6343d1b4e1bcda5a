"""Requests to embedders: the load that pods report in their metrics, and the models that an external one serves."""

import asyncio
import math
from collections.abc import Iterable
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.facts import EmbedderLoad, PodFacts, Problem
from memory_operator.resources.embedder import PROBE_PORT, embedder_url


class EmbedderProbe:
    """Reads metrics and model lists with one HTTP client."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def loads(self, pods: Iterable[PodFacts]) -> tuple[EmbedderLoad, ...]:
        """Return what each pod reports; a pod that does not answer is left out, since its readiness shows that."""
        found = await asyncio.gather(*(self._load(pod) for pod in pods if pod.ip and not pod.deleting))
        return tuple(load for load in found if load is not None)

    async def external(self, index: MemoryIndex, api_key: str | None) -> Problem | None:
        """Return what is wrong with the external embedder, or None where it serves the specified model."""
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            answer = await self._http.get(f"{embedder_url(index)}/v1/models", headers=headers)
            answer.raise_for_status()
            models = answer.json()["data"]
        except httpx.HTTPStatusError as error:
            code = error.response.status_code
            reason = Reason.EMBEDDER_UNAUTHORIZED if code in {401, 403} else Reason.EXTERNAL_UNREACHABLE
            return Problem(reason, f"The embedder at {embedder_url(index)} answers GET /v1/models with {code}.")
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            what = type(error).__name__
            return Problem(
                Reason.EXTERNAL_UNREACHABLE, f"The embedder at {embedder_url(index)} does not answer: {what}."
            )
        return model_problem(index, models)

    async def _load(self, pod: PodFacts) -> EmbedderLoad | None:
        try:
            answer = await self._http.get(f"http://{pod.ip}:{PROBE_PORT}/metrics")
            answer.raise_for_status()
            return parse_metrics(pod.name, answer.text)
        except (httpx.HTTPError, ValueError):
            return None


def model_problem(index: MemoryIndex, models: list[dict[str, Any]]) -> Problem | None:
    """Return why a list of models does not serve the specification, or None where it does."""
    wanted = index.spec.embedding
    served = {model.get("id"): model for model in models}
    if wanted.model not in served:
        names = ", ".join(sorted(str(name) for name in served)) or "none"
        return Problem(
            Reason.MODEL_MISMATCH, f"The embedder at {embedder_url(index)} serves {names}, not {wanted.model}."
        )
    dimensions = served[wanted.model].get("dimensions")
    if dimensions is not None and dimensions != wanted.dimensions:
        return Problem(
            Reason.DIMENSION_MISMATCH,
            f"The embedder at {embedder_url(index)} yields {dimensions} dimensions, "
            f"spec.embedding.dimensions is {wanted.dimensions}.",
        )
    return None


def parse_metrics(pod: str, text: str) -> EmbedderLoad:
    """Parse the few series that decisions and status need; a value that is not finite was not measured yet."""
    queued, rate = 0.0, 0.0
    device: str | None = None
    layers: int | None = None
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not math.isfinite(sample.value):
                continue
            if sample.name in {"memory_embedder_queued_tokens", "memory_embedder_inflight_tokens"}:
                queued += sample.value
            elif sample.name == "memory_embedder_tokens_per_second":
                rate = sample.value
            elif sample.name == "memory_embedder_device_info" and sample.value:
                device = sample.labels.get("device")
            elif sample.name == "memory_embedder_gpu_layers_offloaded":
                layers = int(sample.value)
    return EmbedderLoad(
        pod=pod, queued_tokens=queued, tokens_per_second=rate, device=device, gpu_layers_offloaded=layers
    )
