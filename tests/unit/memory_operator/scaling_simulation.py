"""Simulates embedder pods, their queue, the sync worker and the backfill Job, as the operator observes them.

The number of pods comes from `plan_replicas`, the operator's own decision, at the operator's own intervals. The rest is
a simple model: a new pod serves once its model is loaded; each pod embeds queued tokens at a constant rate; workers
send a bounded number of rows at a time; and a recall that finds no pod is recorded in the database.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from memory_operator.api.spec import MemoryIndex, Spec
from memory_operator.controller.history import ObjectHistory
from memory_operator.reconcile.core import RequeueIntervals
from memory_operator.reconcile.embedder import plan_replicas
from memory_operator.reconcile.facts import Credentials, DeploymentFacts, EmbedderLoad, JobFacts, JobState, Observed
from memory_operator.reconcile.indexing.backfill import BACKFILL_MIN_ROWS
from memory_recall.status import NO_INDEX, DatabaseFacts, RowCounts
from tests.unit.memory_operator.load_day import QUERY_TOKENS, ROW_TOKENS, STEP_SECONDS, Arrivals

MIN_REPLICAS, MAX_REPLICAS, TARGET_SECONDS, DELAY_SECONDS, PARALLELISM = 0, 4, 10.0, 300.0, 2
POD_TOKENS_PER_SECOND = 4_000.0
LOADING_SECONDS = 25
WANTED_EVERY_SECONDS = 30  # how often the library renews its mark at most
ROWS_IN_FLIGHT = 128  # of one worker
_MIDNIGHT = datetime(2026, 1, 5, tzinfo=UTC)
_DATABASE = DatabaseFacts(
    server_version="18.0", in_recovery=False, database_owner="owner", extension_version="0.8.5",
    extension_available="0.8.5", extension_schema="public", schema_revision=None, table_exists=True,
    embedding_dimensions=384, rows=RowCounts(), index=NO_INDEX, active_model=None, next_model=None,
)  # fmt: skip


@dataclass(frozen=True)
class Moment:
    """The state at the end of one step; times are in seconds of the day."""

    second: int
    wanted: int
    ready: int
    queued_tokens: float
    pending_rows: int
    missed_queries: int

    @property
    def queue_seconds(self) -> float:
        """The seconds that the ready pods need for the queued tokens; 0 if no pod is ready."""
        return self.queued_tokens / (self.ready * POD_TOKENS_PER_SECOND) if self.ready else 0.0


def _index() -> MemoryIndex:
    spec = Spec.model_validate(
        {
            "database": {"name": "app", "credentials": {"secretName": "dsn"}},
            "embedding": {"model": "all-MiniLM-L6-v2", "dimensions": 384},
            "backfill": {"parallelism": PARALLELISM},
            "embedder": {
                "minReplicas": MIN_REPLICAS,
                "maxReplicas": MAX_REPLICAS,
                "targetQueueSeconds": TARGET_SECONDS,
                "scaleDownDelaySeconds": DELAY_SECONDS,
            },
        }
    )
    return MemoryIndex(name="mem", namespace="team", uid="u-1", created_at=_MIDNIGHT, generation=1, spec=spec)


@dataclass
class Simulation:
    """The state of the simulated pods, queue, workers and database."""

    index: MemoryIndex = field(default_factory=_index)
    history: ObjectHistory = field(default_factory=ObjectHistory)
    intervals: RequeueIntervals = field(default_factory=lambda: RequeueIntervals(settled=30.0))
    second: int = 0
    ready_at: list[int] = field(default_factory=list)
    wanted: int = 0
    queued_tokens: float = 0.0
    pending_rows: int = 0
    bulk: bool = False
    wanted_at: int | None = None
    reconcile_at: float = 0.0

    def run(self, day: Sequence[Arrivals]) -> list[Moment]:
        """Simulate the steps of a day, and return the state after each step."""
        return [self.step(arrived) for arrived in day]

    def step(self, arrived: Arrivals) -> Moment:
        """Simulate one step, and return the state at its end."""
        missed = self._arrive(arrived)
        self._submit_rows()
        self._serve()
        if self.second >= self.reconcile_at:
            self._reconcile()
        moment = Moment(self.second, self.wanted, self._ready(), self.queued_tokens, self.pending_rows, missed)
        self.second += STEP_SECONDS
        return moment

    def _arrive(self, arrived: Arrivals) -> int:
        """Queue what arrives in one step; return the number of queries that find no ready pod."""
        if arrived.rows and not self.pending_rows:
            self.reconcile_at = min(self.reconcile_at, self.second + self.intervals.stalled)
        self.pending_rows += arrived.rows
        if self._ready():
            self.queued_tokens += arrived.queries * QUERY_TOKENS + arrived.import_tokens
            return 0
        due = self.wanted_at is None or self.second - self.wanted_at >= WANTED_EVERY_SECONDS
        if arrived.queries and due:
            self.wanted_at = self.second
        return arrived.queries

    def _submit_rows(self) -> None:
        """Let the workers send pending rows to the embedder, up to their limit of rows in flight."""
        if not self._ready():
            return
        workers = PARALLELISM if self.bulk else 1
        room = workers * ROWS_IN_FLIGHT - int(self.queued_tokens // ROW_TOKENS)
        sent = max(0, min(self.pending_rows, room))
        self.pending_rows -= sent
        self.queued_tokens += sent * ROW_TOKENS

    def _serve(self) -> None:
        self.queued_tokens = max(0.0, self.queued_tokens - self._ready() * POD_TOKENS_PER_SECOND * STEP_SECONDS)

    def _reconcile(self) -> None:
        """Decide as the operator does, change the number of pods, and set the time of the next reconcile."""
        self.bulk = self.pending_rows >= BACKFILL_MIN_ROWS or (self.bulk and self.pending_rows > 0)
        now = _MIDNIGHT + timedelta(seconds=self.second)
        wanted, recommendation = plan_replicas(self.index, self._observed(), now)
        if recommendation:
            self.history.record_recommendation(recommendation, keep_seconds=DELAY_SECONDS)
        started = [self.second + LOADING_SECONDS] * (wanted - len(self.ready_at))
        self.ready_at = [*self.ready_at[:wanted], *started]
        self.wanted = wanted
        busy = self.bulk or any(at > self.second for at in self.ready_at)
        interval = self.intervals.progress if busy else self.intervals.settled
        self.reconcile_at = self.second + (self.intervals.stalled if wanted == 0 else interval)

    def _observed(self) -> Observed:
        ready = self._ready()
        share = self.queued_tokens / ready if ready else 0.0
        wanted_for = None if self.wanted_at is None else float(self.second - self.wanted_at)
        facts = replace(_DATABASE, rows=RowCounts(pending=self.pending_rows), seconds_since_wanted=wanted_for)
        job = JobFacts("mem-backfill-1", "backfill", "c", 0, JobState.ACTIVE)
        return Observed(
            credentials=Credentials("app"),
            database=facts,
            jobs=(job,) if self.bulk else (),
            embedder=DeploymentFacts(replicas=self.wanted, ready=ready, current=True),
            loads=tuple(EmbedderLoad(f"pod-{n}", share, POD_TOKENS_PER_SECOND) for n in range(ready)),
            recommendations=tuple(self.history.recommendations),
        )

    def _ready(self) -> int:
        return sum(at <= self.second for at in self.ready_at)
