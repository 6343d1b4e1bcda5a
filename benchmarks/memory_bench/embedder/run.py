"""Runs the measurements of one model, from the start of the measured programs to the last round."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from memory_bench import servers
from memory_bench.embedder import machine, mixed
from memory_bench.embedder.cpu.peer import cpu_peers
from memory_bench.embedder.cpu.recall_loss import recall_loss
from memory_bench.embedder.gpu.peer import BATCH_SIZES, SentenceTransformersPeer
from memory_bench.embedder.in_process import LlamaClass, OneThread, RawLoop
from memory_bench.embedder.over_http import HttpSubject
from memory_bench.embedder.plan import (
    ACCEPTANCE_TOKENS,
    MINILM,
    QUERY_TOKENS,
    DocumentPoint,
    MixedPlan,
    ModelPlan,
    RerankPlan,
)
from memory_bench.embedder.records import (
    LLAMA_CLASS,
    LLAMA_CLASS_SMALL,
    LLAMA_SERVER,
    ONNX_F32,
    ONNX_INT8,
    OURS,
    OURS_Q8_0,
    DocumentRecord,
    Measurements,
    MixedRecord,
    QueryRecord,
)
from memory_bench.embedder.subject import DocumentLoad, QuerySubject, Subject, check_agreement, paired_rounds
from memory_bench.embedder.subjects import Subjects
from memory_bench.embedder.texts import check_lengths, texts_of
from memory_bench.harness.dataset import Dataset
from memory_embedder.engine.hardware import available_threads
from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.models.convert.bert import WeightType
from memory_embedder.models.convert.package import convert_package
from memory_embedder.models.gguf_header import read_facts
from memory_embedder.models.profiles import PROFILES, ModelProfile, Pooling
from tests.support.model_files.random_weights import CROSS_ENCODER

_CLASS_WINDOW = 2048
_CLASS_DEFAULT_WINDOW = 512
_PEER_TEXTS = 64
_EIGHT_BITS = {ONNX_INT8: ONNX_F32, OURS_Q8_0: OURS}  # by their names, and what each is compared with

Advance = Callable[[str], None]


@dataclass(slots=True)
class ModelRun:
    """A run of one model's plan. With `peers`, programs that do not stand on llama.cpp are measured as well.

    `labelled` are the sets on which it is measured what recall loses by a peer's vectors in eight bits.
    `advance` is called after every measurement with a description of that measurement. `keep` is called with all
    measurements made so far, so that they can be stored.
    """

    plan: ModelPlan
    model: Path
    reranker: Path
    program: Path | None
    scratch: Path
    package: Path
    processor: machine.Processor
    peers: bool
    labelled: Sequence[Dataset]
    advance: Advance
    keep: Callable[[Measurements], None]
    seeds: Iterator[int] = field(default_factory=lambda: count(1))

    def measure(self) -> Measurements:
        """Start the measured programs, carry out the plan, and return the measurements."""
        with ExitStack() as stack:
            raw = RawLoop(LlamaEngine(self._options()), self.processor.contexts)
            stack.callback(raw.close)
            check_lengths(raw.count_tokens, set(self.plan.lengths))
            found = Measurements(self.plan.model, least_cosine=1.0, gpu=self.processor.gpu)
            facts = read_facts(self.model)
            found.text_flops = {tokens: machine.text_flops(facts, tokens) for tokens in self.plan.lengths}
            if self.plan.calibrate:
                found.raw_calibration = [
                    raw.calibrate(tokens, self._texts(tokens, self.processor.calibration_texts))
                    for tokens in self.plan.lengths
                ]
            subjects = self._start(stack, raw, found)
            texts = self._texts(QUERY_TOKENS, 2) + self._texts(ACCEPTANCE_TOKENS, 2)
            exact = [one for one in subjects.everyone if one.name not in _EIGHT_BITS]
            found.least_cosine = check_agreement(exact, texts)
            self._eight_bits(found, subjects, texts)
            query_subjects: list[QuerySubject] = [*subjects.servers, raw, OneThread(raw), *subjects.peers]
            self._queries(found, query_subjects, facts.dimensions)
            self.keep(found)
            if self.plan.mixed:
                self._mixed(found, subjects.ours, subjects.theirs, self.plan.mixed)
                self.keep(found)
            if self.plan.reranking:
                self._reranking(found, self.plan.reranking)
                self.keep(found)
            for point in self.plan.documents:
                self._documents(found, point, subjects, facts.dimensions)
                self.keep(found)
        return found

    def _start(self, stack: ExitStack, raw: RawLoop, found: Measurements) -> Subjects:
        theirs = None  # started first, because a program from elsewhere may be the wrong one
        if self.program is not None:
            settings = self._best_server(found, self.program)
            started = stack.enter_context(self._llama_server(self.program, settings))
            theirs = HttpSubject(LLAMA_SERVER, started, lanes=False)
        ours = HttpSubject(OURS, stack.enter_context(self._ours(wide=False)), lanes=True)
        windows = {LLAMA_CLASS: _CLASS_WINDOW, LLAMA_CLASS_SMALL: _CLASS_DEFAULT_WINDOW}
        classes = [
            LlamaClass(name, self.model, window, self.processor.contexts, self.processor.gpu_layers)
            for name, window in windows.items()
        ]
        for one in classes:
            stack.callback(one.close)
        return Subjects(ours, theirs, (raw, *classes), self._peers(stack, found))

    def _peers(self, stack: ExitStack, found: Measurements) -> tuple[Subject, ...]:
        if not self.peers:
            return ()
        if self.processor.gpu:
            peer = SentenceTransformersPeer(self.model, self.package, self.scratch)
            peer.calibrate(self._texts(ACCEPTANCE_TOKENS, 2 * max(BATCH_SIZES)))
            return (peer,)
        started = stack.enter_context(cpu_peers(self.model, self.package, self.scratch, self.processor.contexts))
        for one in started:
            one.calibrate(self._texts(ACCEPTANCE_TOKENS, _PEER_TEXTS))
            found.peer_calibration[one.name] = one.calibration
            self.advance(f"{one.name}: finding its batch")
        file = self.scratch / f"{self.plan.model}-q8_0.gguf"
        convert_package(self.package, file, weights=WeightType.Q8_0)
        eight_bits = stack.enter_context(servers.memory_embedder(file, self._log(OURS_Q8_0), self._gpu_options()))
        self.advance(f"{OURS_Q8_0}: starting")
        return (*started, HttpSubject(OURS_Q8_0, eight_bits, lanes=True))

    def _eight_bits(self, found: Measurements, subjects: Subjects, texts: Sequence[str]) -> None:
        """Measure how far vectors in eight bits are from others, and what recall loses by them."""
        named = {one.name: one for one in subjects.everyone}
        for name in _EIGHT_BITS.keys() & named.keys():
            exact, rounded = named[_EIGHT_BITS[name]], named[name]
            found.eight_bit_cosine[name] = round(check_agreement([subjects.ours, rounded], texts, least=0.8), 4)
            for dataset in self.labelled:
                self.advance(f"{name}: what recall loses on {dataset.name}")
                found.eight_bit_recall.append(recall_loss(dataset, exact.vectors, name, rounded.vectors))

    def _queries(self, found: Measurements, subjects: Sequence[QuerySubject], width: int) -> None:
        for tokens in self.plan.query_tokens:
            for subject in subjects:
                subject.run_query(self._texts(tokens, 1)[0])  # warms up buffers of that size

            def turn(subject: QuerySubject, number: int, tokens: int = tokens) -> None:
                texts = self._texts(tokens, self.plan.queries_a_round)
                seconds = tuple(subject.run_query(text) for text in texts)
                found.queries.append(QueryRecord(subject.name, tokens, number, seconds))
                self.advance(f"{subject.name}: queries of {tokens} tokens")

            paired_rounds(subjects, self.plan.query_rounds, turn)
            found.gemm_flops.append(self.processor.gemm_flops(width))

    def _documents(self, found: Measurements, point: DocumentPoint, all_: Subjects, width: int) -> None:
        with ExitStack() as stack:
            ours, peers = all_.ours, all_.peers
            if self.plan.model == MINILM and point.tokens > PROFILES[MINILM].max_tokens:
                ours = HttpSubject(OURS, stack.enter_context(self._ours(wide=True)), lanes=True)
                peers = tuple(one for one in peers if one.name != OURS_Q8_0)  # it would cut the texts
            subjects: list[Subject] = [
                ours,
                *all_.servers[1:],
                *((*all_.in_process, *peers) if point.everyone else ()),
            ]
            rates: dict[str, float] = {}
            for subject in subjects:
                self._time_documents(found, subject, point, number=None, rates=rates)

            def turn(subject: Subject, number: int) -> None:
                self._time_documents(found, subject, point, number=number, rates=rates)
                self.advance(f"{subject.name}: documents of {point.tokens} tokens, {point.concurrency} at once")

            paired_rounds(subjects, point.rounds, turn)
        found.gemm_flops.append(self.processor.gemm_flops(width))

    def _time_documents(
        self,
        found: Measurements,
        subject: Subject,
        point: DocumentPoint,
        *,
        number: int | None,
        rates: dict[str, float],
    ) -> None:
        """Measure how fast one program embeds documents, and update the program's documents per second in `rates`.

        The number of documents is chosen from the program's former rate, so that the measurement takes about
        `point.target_seconds`. The result is recorded as round `number`. For a warm-up `number` is None, and nothing is
        recorded.
        """
        least = 4 if number is None else 8 if isinstance(subject, LlamaClass) else point.concurrency
        wanted = int(rates.get(subject.name, 0.0) * point.target_seconds)
        size = point.texts_per_request
        requests = max(1, -(-max(least, wanted) // size))
        texts = self._texts(point.tokens, requests * size)
        load = mixed.load_of(texts, point.tokens, point.concurrency, size)
        seconds = subject.run_documents(load)
        rates[subject.name] = load.texts / seconds
        if number is not None:
            found.documents.append(
                DocumentRecord(subject.name, point.tokens, point.concurrency, size, number, load.texts, seconds)
            )

    def _mixed(self, found: Measurements, ours: HttpSubject, theirs: HttpSubject | None, plan: MixedPlan) -> None:
        queries = (self._texts(QUERY_TOKENS, 1)[0] for _ in count())
        before = mixed.batch_seconds(ours.probe_port, "document")

        def load() -> DocumentLoad:
            texts = self._texts(ACCEPTANCE_TOKENS, plan.texts)
            return mixed.load_of(texts, ACCEPTANCE_TOKENS, plan.clients, plan.texts_per_request)

        def with_queries(subject: HttpSubject) -> Callable[[int], MixedRecord]:
            return lambda number: mixed.bulk_with_queries(subject, load(), queries, plan, number)

        def alone(number: int) -> MixedRecord:
            return mixed.bulk_alone(ours, load(), number)

        actions = [alone, with_queries(ours), *([with_queries(theirs)] if theirs else [])]
        for number in range(plan.rounds):
            for action in actions if number % 2 == 0 else reversed(actions):
                found.mixed.append(action(number))
                self.advance("documents with and without queries beside them")
        seconds, batches = mixed.batch_seconds(ours.probe_port, "document", before)
        found.document_batch_seconds = seconds / batches

    def _reranking(self, found: Measurements, plan: RerankPlan) -> None:
        reranker = ("--reranker", CROSS_ENCODER, "--reranker-file", str(self.reranker), "--reranker-max-tokens", "512")
        contexts = str(self.processor.contexts)
        layout = () if self.processor.gpu else ("--contexts", contexts, "--batch-tokens", "128")  # without trials
        queries = (self._texts(QUERY_TOKENS, 1)[0] for _ in count())
        with self._ours(wide=False, more=(*reranker, *layout)) as server:
            subject = HttpSubject(OURS, server, lanes=True)
            for number in range(plan.rounds):
                texts = self._texts(ACCEPTANCE_TOKENS, plan.requests * plan.texts_per_request)
                load = mixed.load_of(texts, ACCEPTANCE_TOKENS, plan.clients, plan.texts_per_request)
                found.reranking.append(mixed.measure_reranking(subject, load, queries, plan, number))
                self.advance("queries with and without reranking beside them")

    def _best_server(self, found: Measurements, program: Path) -> servers.LlamaServerSettings:
        candidates = servers.LLAMA_SERVER_CANDIDATES if self.plan.calibrate else servers.LLAMA_SERVER_CANDIDATES[:1]
        rates: dict[servers.LlamaServerSettings, float] = {}
        for settings in candidates:
            with self._llama_server(program, settings) as server:
                subject = HttpSubject(LLAMA_SERVER, server, lanes=False)
                load = mixed.load_of(self._texts(ACCEPTANCE_TOKENS, 64), ACCEPTANCE_TOKENS, 8, 4)
                subject.run_documents(mixed.load_of(self._texts(ACCEPTANCE_TOKENS, 8), ACCEPTANCE_TOKENS, 8, 1))
                rates[settings] = load.texts / subject.run_documents(load) if len(candidates) > 1 else 0.0
            self.advance("")
        found.server_calibration = [
            {"options": self._server_options(one), "documents_per_second": round(rate, 2)}
            for one, rate in rates.items()
        ]
        return max(rates, key=lambda one: rates[one])

    def _ours(self, *, wide: bool, more: Sequence[str] = ()) -> AbstractContextManager[servers.Server]:
        return servers.memory_embedder(
            self.model,
            self._log(OURS),
            [*self._profile_options(wide=wide), *self._gpu_options(), *more],
        )

    def _llama_server(
        self, program: Path, settings: servers.LlamaServerSettings
    ) -> AbstractContextManager[servers.Server]:
        return servers.llama_server(
            program,
            self.model,
            self._log(LLAMA_SERVER),
            self._server_options(settings),
            environment=self.processor.llama_server_environment(),
        )

    def _server_options(self, settings: servers.LlamaServerSettings) -> list[str]:
        return settings.options(available_threads(), self.processor.gpu_layers)

    def _profile_options(self, *, wide: bool) -> list[str]:
        if self.plan.model == MINILM and not wide:
            return []
        profile = self._profile()
        return [
            *("--model", profile.name, "--query-prefix", "", "--document-prefix", ""),
            *("--dimensions", str(profile.dimensions)),
            *("--pooling", profile.pooling, "--max-tokens", str(profile.max_tokens)),
        ]

    def _gpu_options(self) -> list[str]:
        return ["--gpu-layers", str(self.processor.gpu_layers)]

    def _profile(self) -> ModelProfile:
        facts = read_facts(self.model)
        return ModelProfile(
            name=self.plan.model,
            dimensions=facts.dimensions,
            max_tokens=facts.context_length,
            pooling=facts.pooling or Pooling.MEAN,
        )

    def _options(self) -> EngineOptions:
        return EngineOptions(
            path=self.model,
            profile=self._profile(),
            batch_tokens=self.processor.raw_batch_tokens,
            contexts=self.processor.contexts + 1,
            gpu_layers=self.processor.gpu_layers,
        )

    def _texts(self, tokens: int, number: int) -> list[str]:
        return texts_of(tokens, number, seed=next(self.seeds))

    def _log(self, name: str) -> Path:
        return self.scratch / f"{self.plan.model}-{name}-{next(self.seeds)}.log"
