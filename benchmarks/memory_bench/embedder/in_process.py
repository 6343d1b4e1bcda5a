"""Measured programs without HTTP: a raw loop over llama.cpp's encode call, and llama-cpp-python's `Llama` class."""

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

_USUAL_BATCH = 256  # tokens in a batch where no layout was calibrated


@dataclass(frozen=True, slots=True)
class Layout:
    """How texts are divided for computing: number of parallel contexts, threads per context, and texts per batch."""

    contexts: int
    threads: int
    texts: int


class RawLoop:
    """A loop over llama.cpp's encode call on texts that are already tokenised: an upper bound for every server.

    A query is embedded with one thread on each core, as our server does; `OneThread` embeds a query with a single
    thread.
    """

    name = RAW

    def __init__(self, engine: LlamaEngine, cores: int) -> None:
        self._engine = engine
        self._cores = cores
        self._single_threaded = [engine.computer(1) for _ in range(cores)]
        self._multi_threaded = engine.computer(cores) if cores > 1 else self._single_threaded[0]
        self._layouts: dict[int, Layout] = {}

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(self._engine.encode(text).tokens)

    def layouts(self, tokens: int, most: int) -> list[Layout]:
        """Return the layouts that `calibrate` compares for `most` texts of `tokens` tokens."""
        sizes = [texts for texts in (1, 2, 4, 8, 16, 32, 64) if texts <= most]
        fitting = [texts for texts in sizes if texts == 1 or texts * tokens <= self._capacity()]
        shapes = dict.fromkeys([(self._cores, 1), (1, self._cores)])
        return [Layout(contexts, threads, texts) for contexts, threads in shapes for texts in fitting]

    def calibrate(self, tokens: int, texts: Sequence[str]) -> dict[str, object]:
        """Find the fastest layout for documents of `tokens` tokens; return the documents per second of every layout."""
        encoded = [self._engine.encode(text).tokens for text in texts]
        tried = {layout: len(encoded) / self._run(encoded, layout) for layout in self.layouts(tokens, len(texts))}
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
        """Embed all documents in the fastest layout; return the seconds that this takes, without tokenising."""
        encoded = [self._engine.encode(text).tokens for request in load.requests for text in request]
        usual = Layout(self._cores, 1, max(1, _USUAL_BATCH // load.tokens))
        return self._run(encoded, self._layouts.get(load.tokens, usual))

    def run_query(self, text: str) -> float:
        """Embed one query with a thread on every core; return the seconds that this takes, without tokenising."""
        return self.time_query(text, threads=self._cores)

    def time_query(self, text: str, *, threads: int) -> float:
        """Embed one query with `threads` threads; return the seconds that this takes, without tokenising."""
        tokens = self._engine.encode(text).tokens
        computer = self._context(threads)
        return timed(lambda: computer.embed([tokens]))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, computed one text at a time."""
        encoded = [self._engine.encode(text).tokens for text in texts]
        return np.vstack([self._multi_threaded.embed([tokens]) for tokens in encoded])

    def close(self) -> None:
        """Free the model and all contexts."""
        for computer in {id(one): one for one in (*self._single_threaded, self._multi_threaded)}.values():
            computer.close()
        self._engine.close()

    def _run(self, encoded: list[TokenIds], layout: Layout) -> float:
        batches = [encoded[start : start + layout.texts] for start in range(0, len(encoded), layout.texts)]
        computers = self._single_threaded if layout.contexts > 1 else [self._context(layout.threads)]
        numbers = itertools.count()

        def work(computer: LlamaComputer) -> None:
            while (number := next(numbers)) < len(batches):
                computer.embed(batches[number])

        with ThreadPoolExecutor(len(computers)) as pool:
            return timed(lambda: list(pool.map(work, computers)))

    def _context(self, threads: int) -> LlamaComputer:
        return self._multi_threaded if threads > 1 else self._single_threaded[0]

    def _capacity(self) -> int:
        return self._engine.facts.batch_capacity


class OneThread:
    """The raw loop with a single thread for each query."""

    name = RAW_ONE_THREAD

    def __init__(self, raw: RawLoop) -> None:
        self._raw = raw

    def run_query(self, text: str) -> float:
        """Embed one query with a single thread; return the seconds that this takes, without tokenising."""
        return self._raw.time_query(text, threads=1)


class LlamaClass:
    """The `Llama` class of llama-cpp-python, used as its documentation shows: `Llama(embedding=True).embed(list)`.

    `window` is the context size and batch size in tokens; with a larger window the class computes more texts at once.
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
        """Embed all documents in one call, since the class has no concurrency; return the seconds that this takes."""
        texts = [text for request in load.requests for text in request]
        return timed(lambda: self._llama.embed(texts, normalize=True))

    def run_query(self, text: str) -> float:
        """Embed one query; return the seconds that this takes."""
        return timed(lambda: self._llama.embed(text, normalize=True))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, scaled to unit length by the class itself."""
        return np.array(self._llama.embed(list(texts), normalize=True), dtype=np.float32)

    def close(self) -> None:
        """Free the model."""
        self._llama.close()
