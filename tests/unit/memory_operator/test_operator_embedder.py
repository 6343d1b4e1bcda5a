"""What an embedder's answers tell the operator."""

from typing import Any

from memory_operator.api.reasons import Reason
from memory_operator.clients.embedder import model_problem, parse_metrics

METRICS = """\
# TYPE memory_embedder_queued_tokens gauge
memory_embedder_queued_tokens{lane="query"} 10
memory_embedder_queued_tokens{lane="document"} 500
# TYPE memory_embedder_inflight_tokens gauge
memory_embedder_inflight_tokens{lane="document"} 90
# TYPE memory_embedder_tokens_per_second gauge
memory_embedder_tokens_per_second 3000
# TYPE memory_embedder_device_info gauge
memory_embedder_device_info{device="cuda",description="Tesla T4",kernels="cuda"} 1
# TYPE memory_embedder_gpu_layers_offloaded gauge
memory_embedder_gpu_layers_offloaded 25
"""


def test_an_embedders_metrics_tell_its_load_and_its_device() -> None:
    load = parse_metrics("p", METRICS)
    assert (load.queued_tokens, load.tokens_per_second, load.device, load.gpu_layers_offloaded) == (
        600,
        3000,
        "cuda",
        25,
    )


def test_metrics_of_something_else_tell_nothing() -> None:
    load = parse_metrics("p", "# TYPE other gauge\nother 1\n")
    assert (load.queued_tokens, load.tokens_per_second, load.device) == (0, 0, None)


def test_an_external_embedder_must_serve_the_model_with_its_dimensions(world: Any) -> None:
    index = world.index(embedder={"external": {"url": "http://e:8080"}})
    assert model_problem(index, [{"id": "all-MiniLM-L6-v2", "dimensions": 384}]) is None
    other = model_problem(index, [{"id": "bge"}])
    assert other is not None
    assert other.reason is Reason.MODEL_MISMATCH
    wrong = model_problem(index, [{"id": "all-MiniLM-L6-v2", "dimensions": 1024}])
    assert wrong is not None
    assert wrong.reason is Reason.DIMENSION_MISMATCH
