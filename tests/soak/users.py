"""Users who write and ask all the time, and the observer of what comes of it. Nothing of the product is imported.

It runs inside the cluster's network. Its argument is a JSON object with the seed and, for each store, what the process
that recalls is given as well. Standard input tells it to go on to its next phase, one word a line: `quiet` ends the
writes once every store has answered a recall in full again, waits until every row has its vector, and prints how long
both took; `judge` makes it compare everything once more, print its summary as JSON, and end. `swapping STORE` and
`swapped STORE` tell when the model of a store is being exchanged, while vectors are of two models. Whatever is found
wrong is printed at once, as a line of JSON with the key `wrong`.
"""

import asyncio
import json
import random
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import asyncpg
import httpx
import numpy as np

from tests.soak.ledger import (
    Ledger,
    Read,
    Recall,
    State,
    faults_of_answer,
    is_leak,
    lost_writes,
    markers_in,
    pending,
    sensitive_or_removed_since,
)
from tests.soak.packets import OBSERVERS_AGENT, Watch
from tests.soak.stores import EMBEDDER_OF, STORES, USERS, Store
from tests.support.cluster.memories import WORDS

LEAK_TOLERANCE_SECONDS = 1.0
"""Rows are looked up just before their texts are sent; this long after may a marking overtake a request."""
LONGEST_RECALL_SECONDS = 2.2  # the budget of a recall, and a little of what a busy machine adds
KEPT_SECONDS = 60.0  # in which what is kept beside a row that became sensitive has to go
_PORT = 8080
_WRITERS = 2  # of each store, each with rows of its own
_FIRST_ROWS, _MOST_ROWS, _IMPORTED_ROWS = 60, 400, 20  # of each writer
_REMOVED_SHARE = 1 / 32  # of a writer's rows at once, so that at about 250 rows as many go as come
_SENSITIVE_SHARE = 0.15  # of new rows
_PAUSE_SECONDS = (0.2, 1.2)
_OWN_SESSION = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_END_SESSION = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE (pid, backend_start) = ($1, $2)"
_STATEMENT_SECONDS, _CONNECT_SECONDS, _RETRY_SECONDS = 8.0, 5.0, 0.5
_CHECK_SECONDS = 5.0
_ALIKE = 0.995  # the least cosine of a stored vector to that of the row's text
_EMBED_SECONDS = 60.0
_FINAL_SECONDS = 120.0
_AGAIN_SECONDS = 600.0  # for every store to answer again and for every row to get its vector
OUTCOMES = ("answered", "degraded", "refused")
"""Of a recall: in full, without what its vectors would have found, or not at all."""
_SHOWN = 10  # examples of each finding in the summary
_WORDS = WORDS.split()
OPERATIONS = {
    "insert": 25, "edit": 30, "edit sensitive": 6, "mark": 14, "unmark": 8, "delete": 9, "restore": 4, "hand over": 4,
    "import": 1, "remove": 6,
}  # fmt: skip
"""What a writer does, each with its share."""
_PLAIN, _SENSITIVE, _DELETED = (False, False), (True, False), (False, True)
_CHANGES = {  # whether the row is sensitive and deleted, before and after
    "edit": (_PLAIN, _PLAIN),
    "edit sensitive": (_SENSITIVE, _SENSITIVE),
    "mark": (_PLAIN, _SENSITIVE),
    "unmark": (_SENSITIVE, _PLAIN),
    "delete": (_PLAIN, _DELETED),
    "restore": (_DELETED, _PLAIN),
    "hand over": (_PLAIN, _PLAIN),
}
_LOST = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_SAMPLES = """
    SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()),
           (SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables),
           (SELECT count(*) FROM pg_replication_slots)
"""


def say(**line: object) -> None:
    """Print one line of JSON."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Observer:
    """Judges answers, requests and rows by what users have written, and counts what is wrong."""

    def __init__(self) -> None:
        self.ledgers = {store.name: Ledger() for store in STORES}
        self.wrong: dict[str, list[str]] = {}
        self.recalls = {store.name: dict.fromkeys(OUTCOMES, 0) for store in STORES}
        self.found_of = {store.name: 0 for store in STORES}  # answered, and with a memory in the answer
        self.longest = 0.0
        self.last_answered: dict[str, float] = {}
        self.answered_again: list[str] = []
        self.reasons: Counter[str] = Counter()
        self.sightings = {store.name: 0 for store in STORES}

    def summary(self) -> dict[str, Any]:
        """Return how many recalls there were and what became of them, and what was wrong."""
        return {
            "recalls": sum(sum(counts.values()) for counts in self.recalls.values()),
            "refused": sum(counts["refused"] for counts in self.recalls.values()),
            "recalls_of": self.recalls,
            "found_of": self.found_of,
            "written": {name: ledger.confirmed for name, ledger in self.ledgers.items()},
            "texts_seen_in_requests": self.sightings,
            "answered_again": self.answered_again,
            "reasons": dict(self.reasons),
            "longest_recall_s": round(self.longest, 2),
            "counts": {kind: len(found) for kind, found in self.wrong.items()},
            "wrong": {kind: found[:_SHOWN] for kind, found in self.wrong.items()},
        }

    def found(self, kind: str, what: str) -> None:
        """Record something wrong, and say so."""
        self.wrong.setdefault(kind, []).append(what)
        say(wrong=kind, what=what, at=time.monotonic())

    def answered(self, recall: Recall) -> None:
        """Judge one recall."""
        seconds = recall.ended - recall.began
        self.longest = max(self.longest, seconds)
        reason = recall.error or recall.degraded
        if seconds > LONGEST_RECALL_SECONDS:
            still = f"for {recall.stood_still:.2f} s of them its loop stood still"
            used = f"it computed for {recall.computed:.2f} s and waited for a processor for {recall.queued:.2f} s"
            say(slow=f"a recall in {recall.store} took {seconds:.2f} s ({still}; {used}): {reason or 'answered'}")
        of_process = seconds - max(0.0, recall.stood_still - recall.computed)
        if of_process > LONGEST_RECALL_SECONDS:
            self.found("late", f"a recall in {recall.store} took {of_process:.2f} s of its process")
        outcome = "refused" if recall.error is not None else "answered" if recall.degraded is None else "degraded"
        self.recalls[recall.store][outcome] += 1
        if outcome == "answered":
            self.last_answered[recall.store] = recall.began
            self.found_of[recall.store] += bool(recall.found)
        else:
            self.reasons[f"{recall.store}: {reason}"] += 1
        for fault in faults_of_answer(self.ledgers[recall.store], recall):
            self.found(fault.split()[0], f"{fault} in {recall.store}, asked by {recall.asker} at {recall.began:.1f}")

    async def until_answered_again(self, deadline: float) -> None:
        """Wait until each store has answered a recall that began after now in full, until the deadline at most."""
        began = time.monotonic()
        while len(self.answered_again) < len(STORES) and time.monotonic() < deadline:
            await asyncio.sleep(_RETRY_SECONDS)
            self.answered_again = [name for name, at in sorted(self.last_answered.items()) if at > began]

    def sighted(self, marker: str, began: float) -> None:
        """Judge a text that was seen in a request to an embedder."""
        for name, ledger in self.ledgers.items():
            self.sightings[name] += ledger.row_of(marker) is not None
            if is_leak(ledger, marker, began, LEAK_TOLERANCE_SECONDS):
                row = ledger.row_of(marker)
                states = ledger.possible(str(row), began, began)  # none if the request began before the row was written
                since = max((state.confirmed or state.began for state in states), default=began)
                self.found("leak", f"{marker} of {name} to an embedder {began - since:.1f} s after it became sensitive")


class Writer:
    """Writes rows of one store, one after the other, each until it is confirmed."""

    def __init__(self, store: Store, number: int, dsn: Path, ledger: Ledger, dice: random.Random) -> None:
        self._store = store
        self._number = number
        self._dsn = dsn
        self._ledger = ledger
        self._dice = dice
        self._words: dict[str, str] = {}  # by the key of each row, its own; also of rows that are removed
        self._connection: Any = None
        self._session: Any = None

    async def run(self, ended: asyncio.Event, questions: "asyncio.Queue[list[str]]") -> None:
        """Write until the end, and ask something of a row that was just written."""
        await self._write([self._new() for _ in range(_FIRST_ROWS)])
        while not ended.is_set():
            operation = self._dice.choices([*OPERATIONS], [*OPERATIONS.values()])[0]
            states = self._next(operation)
            await self._write(states)
            if states and not questions.full():
                questions.put_nowait(self._question(states[0][0]))
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), self._dice.uniform(*_PAUSE_SECONDS))
        if self._connection is not None:
            self._connection.terminate()

    def _question(self, row: str) -> list[str]:
        """Return a question about a row, often of its owner or of who was so until now."""
        owner = self._dice.choice(self._ledger.rows[row][-2:]).owner
        asker = owner if self._dice.random() < 0.6 else self._dice.choice(USERS)
        return [self._store.name, asker, f"{self._words[row]} {' '.join(self._dice.choices(_WORDS, k=4))}"]

    def _next(self, operation: str) -> list[tuple[str, State]]:
        """Return the rows to write, each with its new state; none if there is no row for it, or no room."""
        states = {row: state for row in self._words if not (state := self._ledger.rows[row][-1]).removed}
        if operation in {"insert", "import"}:
            count = 1 if operation == "insert" else _IMPORTED_ROWS
            return [self._new() for _ in range(count)] if len(states) + count <= _MOST_ROWS else []
        if operation == "remove":
            rows = self._dice.sample([*states], round(len(states) * _REMOVED_SHARE))
            return [(row, replace(states[row], removed=True, confirmed=None)) for row in rows]
        before, after = _CHANGES[operation]
        rows = [row for row, state in states.items() if (state.sensitive, state.deleted) == before]
        if not rows:
            return []
        row = self._dice.choice(rows)
        marker, owner = states[row].marker, states[row].owner
        if operation == "hand over":
            owner = self._dice.choice([user for user in USERS if user != owner])
        elif operation.startswith("edit"):
            marker = self._marker()
        return [(row, State(marker, owner, *after, began=0.0))]

    def _new(self) -> tuple[str, State]:
        number = len(self._words) * _WRITERS + self._number + 1
        row = self._store.key_of(number)
        self._words[row] = f"tag{self._store.name.removeprefix('soak-')}{number}"
        sensitive = self._dice.random() < _SENSITIVE_SHARE
        return row, State(self._marker(), self._dice.choice(USERS), sensitive=sensitive, deleted=False, began=0.0)

    def _marker(self) -> str:
        return f"zq{self._dice.getrandbits(56):014x}"

    async def _write(self, rows: Sequence[tuple[str, State]]) -> None:
        """Bring rows into their states, and try again until all are confirmed."""
        written = [self._statement(row, state) for row, state in rows]
        for row, state in rows:
            state.began = time.monotonic()
            self._ledger.write(row, state)
        while written:
            try:
                if self._connection is None or self._connection.is_closed():
                    await self._connect()
                async with asyncio.timeout(_STATEMENT_SECONDS):
                    await self._connection.executemany(written[0][0], [values for _, values in written])
                break
            except _LOST:
                if self._connection is not None:
                    self._connection.terminate()
                    self._connection = None
                await asyncio.sleep(_RETRY_SECONDS)
        now = time.monotonic()
        for _, state in rows:
            state.confirmed = now

    def _statement(self, row: str, state: State) -> tuple[str, tuple[object, ...]]:
        """Return the statement that brings a row from its last state into this one, and the values that it is given."""
        former = self._ledger.rows.get(row, [state])[-1]
        if state.removed:
            return self._store.removal, (row,)
        if state.owner != former.owner:
            return self._store.handover, (row, state.owner)
        dice = random.Random(state.marker)  # noqa: S311 - the text follows from the marker
        text = f"{state.marker} {self._words[row]} {' '.join(dice.choices(_WORDS, k=14))}"
        return self._store.upsert, (row, state.owner, text, state.sensitive, state.deleted)

    async def _connect(self) -> None:
        """Connect, and end the former session on the server: what it was sent last could be executed after the next.

        Raises:
            TimeoutError: the former session has not ended.
        """
        self._connection = await asyncpg.connect(
            self._dsn.read_text(encoding="utf-8").strip(),
            timeout=_CONNECT_SECONDS,
            command_timeout=_STATEMENT_SECONDS,
            server_settings={"application_name": "users"},
        )
        if self._session is not None:
            ended = await self._connection.fetchval(_END_SESSION, *self._session)
            if ended is False:  # None if the server has no such session
                raise TimeoutError("the former session has not ended")
        self._session = await self._connection.fetchrow(_OWN_SESSION)


@asynccontextmanager
async def connected(dsn: Path) -> AsyncIterator[Any]:
    """Open a connection to a store for the block."""
    connection = await asyncpg.connect(
        dsn.read_text(encoding="utf-8").strip(),  # noqa: ASYNC240 - a line of a local file
        timeout=_CONNECT_SECONDS,
        command_timeout=_STATEMENT_SECONDS,
        server_settings={"application_name": "observer"},
    )
    try:
        yield connection
    finally:
        connection.terminate()


async def embedded(url: str, texts: Sequence[str]) -> np.ndarray:
    """Return the vectors of texts as an embedder computes them now."""
    agent = {"User-Agent": OBSERVERS_AGENT}
    async with httpx.AsyncClient(timeout=_EMBED_SECONDS, headers=agent) as client:
        served = (await client.get(f"{url}/v1/models")).raise_for_status().json()["data"][0]["id"]
        body = {"input": list(texts), "model": served, "input_type": "document"}
        answer = (await client.post(f"{url}/v1/embeddings", json=body)).raise_for_status().json()
    return np.array([one["embedding"] for one in sorted(answer["data"], key=lambda one: one["index"])])


async def unlike(url: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return the texts whose stored vector is not theirs, each with the cosine."""
    found = []
    computed = await embedded(url, [text for text, _ in rows])
    for (text, stored), vector in zip(rows, computed, strict=True):
        kept = np.array(json.loads(stored))
        with np.errstate(invalid="ignore"):  # of a vector of zeros it is not a number
            cosine = float(kept @ vector / (np.linalg.norm(kept) * np.linalg.norm(vector)))
        if not cosine >= _ALIKE:
            found.append(f"{next(iter(markers_in(text.encode())), text[:20])}: cosine {cosine:.3f}")
    return found


class Checks:
    """Looks at the stores again and again."""

    def __init__(self, observer: Observer, stores: dict[str, dict[str, Any]]) -> None:
        self._observer = observer
        self._dsn = {name: Path(settings["direct_file"]) for name, settings in stores.items()}
        self._embedder = {name: settings["embedder"] for name, settings in stores.items()}
        self.swapping: set[str] = set()
        self.made: Counter[str] = Counter()

    async def run(self) -> None:
        """Check one store after the other; what cannot be read now is read the next time."""
        while True:
            for store in STORES:
                with suppress(*_LOST, httpx.HTTPError):
                    await self._check(store)
                await asyncio.sleep(_CHECK_SECONDS / len(STORES))

    async def _check(self, store: Store) -> None:
        """Look at a store once. What is found wrong is said before the next statement, which may fail."""
        ledger = self._observer.ledgers[store.name]
        async with connected(self._dsn[store.name]) as connection:
            before = time.monotonic()
            rows = sensitive_or_removed_since(ledger, before, KEPT_SECONDS)
            sure = sensitive_or_removed_since(ledger, before, 0.0)
            if vectors := await self._count(connection, store.vectors_of, sure, ledger, before):
                self._observer.found("leak", f"{vectors} vectors of sensitive or removed rows in {store.name}")
            if store.links and (links := await self._count(connection, store.links, rows, ledger, before)):
                self._observer.found("leak", f"{links} links of rows sensitive or removed for a minute in {store.name}")
            read_at = time.monotonic()
            reads = [Read(*row) for row in await connection.fetch(store.everything)]
            for row, found in lost_writes(ledger, reads, read_at, time.monotonic()):
                self._lost(store, row, found, read_at)
            connections, dead, slots = await connection.fetchrow(_SAMPLES)
            held = {f"connections {store.name}": connections, f"dead rows {store.name}": int(dead), "slots": slots}
            say(samples=held)
            sample = [tuple(row) for row in await connection.fetch(store.sample)] if self._settled(store) else []
        if sample:
            wrong = await unlike(self._embedder[store.name], sample)
            if self._settled(store):
                for one in wrong:
                    self._observer.found("stale", f"vector of {one} in {store.name}")
        self.made[store.name] += 1

    def _lost(self, store: Store, row: str, found: str, read_at: float) -> None:
        history = self._observer.ledgers[store.name].history(row)
        self._observer.found("lost", f"{row} of {store.name} {found}, read at {read_at:.1f} ({history})")

    def _settled(self, store: Store) -> bool:
        return EMBEDDER_OF[store.name] not in self.swapping and store.name not in self.swapping

    async def _count(self, connection: Any, statement: str, rows: list[str], ledger: Ledger, before: float) -> int:
        """Count what there is of rows that were sensitive or removed before, and still so when the answer came."""
        if not rows:
            return 0
        keys = [row for (row,) in await connection.fetch(statement, rows)]
        states = {row: ledger.possible(row, before, time.monotonic()) for row in set(keys)}
        still = {row for row, possible in states.items() if all(one.is_sensitive_or_removed for one in possible)}
        return sum(key in still for key in keys)

    async def until_embedded(self, deadline: float) -> None:
        """Wait until every row that may be embedded has its vector, until the deadline at most."""
        for store in STORES:
            while time.monotonic() < deadline:
                with suppress(*_LOST):
                    async with connected(self._dsn[store.name]) as connection:
                        if not pending(Read(*row) for row in await connection.fetch(store.everything)):
                            break
                await asyncio.sleep(_RETRY_SECONDS)

    async def compare(self, store: Store) -> dict[str, int]:
        """Compare every row with what was written; return how many rows there are, are lost, and are not embedded."""
        async with connected(self._dsn[store.name]) as connection:
            read_at = time.monotonic()
            reads = [Read(*row) for row in await connection.fetch(store.everything)]
            sample = store.sample.replace("ORDER BY random() LIMIT 12", "")
            pairs = [tuple(row) for row in await connection.fetch(sample)]
        lost = list(lost_writes(self._observer.ledgers[store.name], reads, read_at, time.monotonic()))
        for key, found in lost:
            self._lost(store, key, found, read_at)
        for first in range(0, len(pairs), 32):
            for one in await unlike(self._embedder[store.name], pairs[first : first + 32]):
                self._observer.found("stale", f"vector of {one} in {store.name}")
        return {"rows": len(reads), "lost": len(lost), "pending": pending(reads)}


async def read_recalls(process: asyncio.subprocess.Process, observer: Observer) -> None:
    """Judge the recalls that the other process prints, and pass on what it says of itself."""
    assert process.stdout is not None
    async for line in process.stdout:
        message = json.loads(line)
        if "samples" in message:
            say(**message)
            continue
        for name in ("found", "owners"):
            message[name] = tuple(message[name])
        observer.answered(Recall(**message))
    raise RuntimeError("The process that recalls ended by itself; recalls.log has what it printed.")


async def judge_texts(sightings: "asyncio.Queue[tuple[str, float]]", observer: Observer) -> None:
    """Judge the texts that were seen in requests, each with when its request began."""
    while True:
        observer.sighted(*await sightings.get())


async def send_questions(process: asyncio.subprocess.Process, questions: "asyncio.Queue[list[str]]") -> None:
    """Hand questions to the process that recalls."""
    assert process.stdin is not None
    while True:
        process.stdin.write(json.dumps(await questions.get()).encode() + b"\n")
        await process.stdin.drain()


async def final(checks: Checks) -> dict[str, dict[str, int]]:
    """Compare all stores; a store that cannot be read is tried again for a while."""
    found: dict[str, dict[str, int]] = {}
    deadline = time.monotonic() + _FINAL_SECONDS
    for store in STORES:
        while store.name not in found:
            try:
                found[store.name] = await checks.compare(store)
            except (*_LOST, httpx.HTTPError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)
    return found


def made_writers(order: dict[str, Any], observer: Observer) -> list[Writer]:
    """Return the writers of all stores, each with rows and dice of its own."""
    return [
        Writer(
            store,
            number,
            Path(order["stores"][store.name]["direct_file"]),
            observer.ledgers[store.name],
            random.Random(f"{order['seed']} {store.name} {number}"),  # noqa: S311 - the same in every run
        )
        for store in STORES
        for number in range(_WRITERS)
    ]


async def quieten(
    checks: Checks, observer: Observer, writing: Sequence["asyncio.Task[None]"], ended: asyncio.Event
) -> None:
    """End the writes once every store has answered again, wait for all vectors, and say how many seconds each took."""
    began = time.monotonic()
    await observer.until_answered_again(began + _AGAIN_SECONDS)
    answered = time.monotonic()
    ended.set()
    await asyncio.wait(writing)
    await checks.until_embedded(began + _AGAIN_SECONDS)
    say(quiet={"answered_s": round(answered - began, 1), "embedded_s": round(time.monotonic() - answered, 1)})


async def follow_commands(
    checks: Checks, observer: Observer, writing: Sequence["asyncio.Task[None]"], ended: asyncio.Event
) -> None:
    """Do what standard input says, until it says `judge` or ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        word, _, store = line.decode().strip().partition(" ")
        if word == "swapping":
            checks.swapping.add(store)
        elif word == "swapped":
            checks.swapping.discard(store)
        elif word == "quiet":
            await quieten(checks, observer, writing, ended)
        else:
            return


async def main(order: dict[str, Any], log: BinaryIO) -> None:
    """Write, ask and observe until standard input says otherwise, and print the summary."""
    stores: dict[str, dict[str, Any]] = order["stores"]
    loop, observer = asyncio.get_running_loop(), Observer()
    sightings: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
    questions: asyncio.Queue[list[str]] = asyncio.Queue(maxsize=16)
    ended, checks, writers = asyncio.Event(), Checks(observer, stores), made_writers(order, observer)

    def sighted(marker: str, began: float) -> None:
        loop.call_soon_threadsafe(sightings.put_nowait, (marker, began))

    with Watch(_PORT, sighted) as watch:
        program = (sys.executable, "-m", "tests.soak.recalling", json.dumps(stores))
        process = await asyncio.create_subprocess_exec(*program, stdin=PIPE, stdout=PIPE, stderr=log, limit=1 << 20)
        async with asyncio.TaskGroup() as running:
            writing = [running.create_task(writer.run(ended, questions)) for writer in writers]
            recalling = [
                running.create_task(work)
                for work in (read_recalls(process, observer), send_questions(process, questions))
            ]
            judging = running.create_task(judge_texts(sightings, observer))
            checking = running.create_task(checks.run())
            await follow_commands(checks, observer, writing, ended)
            checking.cancel()
            compared = await final(checks)
            for task in (*recalling, judging):
                task.cancel()
            process.kill()
            ended.set()
    seen = {"packets_missed": watch.missed, "checks": dict(checks.made)}
    say(summary={**observer.summary(), **seen, "stores": compared})


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    with Path(given["log"]).open("ab") as file:
        asyncio.run(main(given, file))
