"""Plans how a model is loaded and computed on this machine, from settings, profile and hardware alone."""

from dataclasses import dataclass
from pathlib import Path

from memory_embedder.engine.protocol import EngineFacts, EngineOptions
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.models.profiles import ModelProfile
from memory_embedder.settings import EmbedderSettings

_CPU_BATCH_TOKENS = 128  # as fast as 256 on F16 weights, faster on quantised ones, and the wait is half
_GPU_BATCH_TOKENS = 2048  # enough to fill a GPU, short enough for a query to wait for
_GPU_CONTEXTS = 2  # while the GPU computes a batch of one, the processor prepares and reads that of the other
_MAX_CONTEXTS = 8  # each has buffers of its own; beyond this, threads are shared out inside the contexts
_MAX_QUERY_THREADS = 8  # the most that are tried at start: a query's matrices are too small to share out among many


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """How many contexts compute, and with how many threads.

    `general` contexts compute documents and queries, and `rerank` contexts the reranker's pairs, with `threads` threads
    each. One further context, with `express_threads`, computes queries alone.
    """

    general: int
    threads: int
    express_threads: int
    rerank: int = 0


@dataclass(frozen=True, slots=True)
class ComputePlan:
    """How batches are computed: the most tokens of a batch, and the contexts with their threads."""

    batch_tokens: int
    workers: WorkerPlan


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How to load a model, and plans for computing batches with it.

    The first of the `candidates` is the default; measurements at the start compare the others with it. `on_cpu` is the
    plan that is used instead where a GPU is requested, the CPU is allowed, and no GPU is found.
    """

    options: EngineOptions
    candidates: tuple[ComputePlan, ...]
    cores: int
    on_cpu: "LoadPlan | None" = None

    def fitting(self, facts: EngineFacts) -> tuple[ComputePlan, ...]:
        """Return the candidates for the device that has the layers, with no more contexts than there may be at once."""
        if self.on_cpu is not None and facts.layers_offloaded == 0:
            return self.on_cpu.fitting(facts)
        fewer = (
            ComputePlan(one.batch_tokens, _workers(self.cores, min(one.workers.general, facts.most_contexts - 1)))
            for one in self.candidates
        )
        return tuple(dict.fromkeys(fewer))


def plan_load(settings: EmbedderSettings, profile: ModelProfile, cores: int, memory: int | None = None) -> LoadPlan:
    """Plan how to load a model with `cores` cores and `memory` bytes, or with any number of bytes if it is None."""
    candidates = tuple(
        dict.fromkeys(
            ComputePlan(batch_tokens, _workers(cores, contexts)) for contexts, batch_tokens in _choices(settings, cores)
        )
    )
    limit = settings.gpu_memory_limit
    on_cpu = None
    if settings.gpu_layers != 0 and settings.allow_cpu:
        on_cpu = plan_load(settings.model_copy(update={"gpu_layers": 0}), profile, cores, memory)
    options = EngineOptions(
        path=settings.file(),
        digest=settings.digest,
        profile=profile,
        batch_tokens=max(candidate.batch_tokens for candidate in candidates),
        contexts=max(map(_with_express, candidates)),
        least_contexts=min(map(_with_express, candidates)),
        # Where a GPU was asked for and is absent, that is what has to be reported, and not the memory that is short.
        memory=memory if settings.gpu_layers == 0 else None,
        on_cpu=None if on_cpu is None else on_cpu.options,
        gpu_layers=settings.gpu_layers,
        gpu_memory_limit=None if limit is None else limit << 20,
    )
    return LoadPlan(options, candidates, cores, on_cpu)


def plan_reranker_load(
    settings: EmbedderSettings,
    profile: ModelProfile,
    compute: ComputePlan,
    embedder: EngineFacts,
    memory: int | None = None,
) -> EngineOptions:
    """Plan how to load the reranker beside the embedding model, whose facts `embedder` are, in `memory` bytes for both.

    It is computed as documents are: with as many contexts, threads and tokens in a batch, which `compute` gives, and
    where the embedding model is. Where memory is too small, it has fewer contexts.
    """
    limit = settings.gpu_memory_limit
    return EngineOptions(
        path=settings.reranker_file or Path("/models") / f"{profile.name}.gguf",
        digest=settings.reranker_digest,
        profile=profile,
        batch_tokens=compute.batch_tokens,
        contexts=compute.workers.general,
        least_contexts=1,
        memory=None if memory is None else max(0, memory - embedder.memory_estimate_bytes),
        reserved=embedder.contexts_estimate_bytes,
        gpu_layers=settings.gpu_layers if embedder.layers_offloaded else 0,
        gpu_memory_limit=None if limit is None else max(0, (limit << 20) - embedder.memory_estimate_bytes),
    )


def _with_express(candidate: ComputePlan) -> int:
    """Return the number of contexts, the express context included."""
    return candidate.workers.general + 1


def _choices(settings: EmbedderSettings, cores: int) -> list[tuple[int, int]]:
    """Return pairs of a number of contexts and a batch size in tokens; the default pair is first.

    On a CPU, several contexts of one thread are mostly faster than one context with many threads, because small
    matrices do not divide well. On a GPU only smaller batches and fewer contexts than the default are tried, because
    they need no more memory; where it is too small for the default, they are all that is left.
    """
    gpu = settings.gpu_layers != 0
    contexts = settings.contexts or (_GPU_CONTEXTS if gpu else min(cores, _MAX_CONTEXTS))
    batch = settings.batch_tokens or (_GPU_BATCH_TOKENS if gpu else _CPU_BATCH_TOKENS)
    sizes = () if settings.batch_tokens else (batch // 2, batch // 4) if gpu else (batch // 2, batch * 2)
    single = [] if settings.contexts else [(1, batch)]
    if gpu:  # trials may end before all are made, and the number of contexts matters more than the size
        return [(contexts, batch), *single, *((number, size) for size in sizes for number in (contexts, 1))]
    return [(contexts, batch), *((contexts, size) for size in sizes), *single]


def _workers(cores: int, contexts: int) -> WorkerPlan:
    each = max(1, cores // contexts)
    return WorkerPlan(general=contexts, threads=each, express_threads=min(cores, _MAX_QUERY_THREADS))


def check_offload(settings: EmbedderSettings, facts: EngineFacts) -> None:
    """Check that the requested GPU is in use, because the service would run on the CPU, too, but far more slowly.

    Raises:
        EmbedderError: fewer layers than requested are on a GPU, and `allow_cpu` is not set.
    """
    if settings.gpu_layers == 0 or settings.allow_cpu:
        return
    wanted = facts.layers_total if settings.gpu_layers < 0 else min(settings.gpu_layers, facts.layers_total)
    if facts.layers_offloaded < wanted:
        raise EmbedderError(
            ErrorKind.GPU_NOT_USED,
            f"{wanted} layers were to run on a GPU but llama.cpp put {facts.layers_offloaded} there; "
            "check the pod's GPU resource, its runtime class, the node's driver and that this is the CUDA image, "
            "or compute on the CPU with --gpu-layers 0 (or `serve` with --allow-cpu).",
        )
