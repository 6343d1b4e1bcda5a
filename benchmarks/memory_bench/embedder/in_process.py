"""Subjects without HTTP: llama.cpp's raw encode loop, and the `Llama` class of its Python package."""

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from llama_cpp import Llama

from memory_bench.embedder.records import RAW, RAW_ONE_THREAD
from memory_bench.embedder.subject import DocumentLoad, Vectors, timed
from memory_embedder.engine.llama import LlamaComputer, LlamaEngine
from memory_embedder.engine.protocol import TokenIds

_USUAL_BATCH = 256  # tokens, where no layout was looked for


@dataclass(frozen=True, slots=True)
class Layout:
    """Contexts side by side, threads in each, texts in a batch."""

    contexts: int
    threads: int
    texts: int


class RawLoop:
    """Tokens in memory, batches of one size, nothing but encode and read: no server can be faster than this.

    A query is computed by a thread for each core, as ours is; `OneThread` is the same with one.
    """

    name = RAW

    def __init__(self, engine: LlamaEngine, cores: int) -> None:
        self._engine = engine
        self._cores = cores
        self._side_by_side = [engine.computer(1) for _ in range(cores)]
        self._together = engine.computer(cores) if cores > 1 else self._side_by_side[0]
        self._layouts: dict[int, Layout] = {}

    def count_tokens(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._engine.encode(text).tokens)

    def layouts(self, tokens: int) -> list[Layout]:
        """What is tried for texts of that length."""
        fitting = [texts for texts in (1, 2, 4, 8, 16) if texts == 1 or texts * tokens <= self._capacity()]
        shapes = dict.fromkeys([(self._cores, 1), (1, self._cores)])
        return [Layout(contexts, threads, texts) for contexts, threads in shapes for texts in fitting]

    def calibrate(self, tokens: int, texts: Sequence[str]) -> dict[str, object]:
        """Finds the fastest layout for documents of that length; tells all that was tried."""
        encoded = [self._engine.encode(text).tokens for text in texts]
        tried = {layout: len(encoded) / self._run(encoded, layout) for layout in self.layouts(tokens)}
        self._layouts[tokens] = max(tried, key=lambda layout: tried[layout])
        return {
            "tokens": tokens,
            "documents_per_second": [
                {
                    "contexts": one.contexts,
                    "threads": one.threads,
                    "texts_per_batch": one.texts,
                    "value": round(rate, 2),
                }
                for one, rate in tried.items()
            ],
        }

    def run_documents(self, load: DocumentLoad) -> float:
        """Everything in the fastest layout that was found; tokenising is not counted."""
        encoded = [self._engine.encode(text).tokens for request in load.requests for text in request]
        usual = Layout(self._cores, 1, max(1, _USUAL_BATCH // load.tokens))
        return self._run(encoded, self._layouts.get(load.tokens, usual))

    def run_query(self, text: str) -> float:
        """Encoding alone, on every core."""
        return self.time_query(text, threads=self._cores)

    def time_query(self, text: str, *, threads: int) -> float:
        """Encoding alone."""
        tokens = self._engine.encode(text).tokens
        computer = self._context(threads)
        return timed(lambda: computer.embed([tokens]))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """One by one."""
        encoded = [self._engine.encode(text).tokens for text in texts]
        return np.vstack([self._together.embed([tokens]) for tokens in encoded])

    def close(self) -> None:
        """Frees every context and the model."""
        for computer in {id(one): one for one in (*self._side_by_side, self._together)}.values():
            computer.close()
        self._engine.close()

    def _run(self, encoded: list[TokenIds], layout: Layout) -> float:
        batches = [encoded[start : start + layout.texts] for start in range(0, len(encoded), layout.texts)]
        computers = self._side_by_side if layout.contexts > 1 else [self._context(layout.threads)]
        numbers = itertools.count()

        def work(computer: LlamaComputer) -> None:
            while (number := next(numbers)) < len(batches):
                computer.embed(batches[number])

        with ThreadPoolExecutor(len(computers)) as pool:
            return timed(lambda: list(pool.map(work, computers)))

    def _context(self, threads: int) -> LlamaComputer:
        return self._together if threads > 1 else self._side_by_side[0]

    def _capacity(self) -> int:
        return self._engine.facts.batch_capacity


class OneThread:
    """Queries of the raw loop in a context with one thread."""

    name = RAW_ONE_THREAD

    def __init__(self, raw: RawLoop) -> None:
        self._raw = raw

    def run_query(self, text: str) -> float:
        """Encoding alone."""
        return self._raw.time_query(text, threads=1)


class LlamaClass:
    """`llama_cpp.Llama(embedding=True).embed(list)`, as its documentation shows it.

    `window` tokens are its context and batch size; larger batches let it take more texts at once.
    """

    def __init__(self, name: str, model: Path, window: int, threads: int, gpu_layers: int) -> None:
        self.name = name
        self._llama = Llama(
            str(model),
            embedding=True,
            n_ctx=window,
            n_batch=window,
            n_ubatch=window,
            n_threads=threads,
            n_gpu_layers=gpu_layers,
            n_threads_batch=threads,
            verbose=False,
        )

    def run_documents(self, load: DocumentLoad) -> float:
        """All texts in one call: it has no notion of concurrency."""
        texts = [text for request in load.requests for text in request]
        return timed(lambda: self._llama.embed(texts, normalize=True))

    def run_query(self, text: str) -> float:
        """One text."""
        return timed(lambda: self._llama.embed(text, normalize=True))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """As it returns them."""
        return np.array(self._llama.embed(list(texts), normalize=True), dtype=np.float32)

    def close(self) -> None:
        """Frees it."""
        self._llama.close()
