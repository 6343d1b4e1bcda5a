"""Recalls that go on in a pod while a test kills instances of Postgres, and what is found wrong with their answers."""

import json
import os
import subprocess
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.demo.objects import TOOLBOX
from devcluster.postgres import Postgres
from tests.support.cluster.memories import Row
from tests.support.cluster.tenants import Tenant
from tests.support.waiting import eventually

SCRIPT = Path(__file__).with_name("recalling_script.py")
DOCUMENTED = {"DatabaseUnreachable", "ReplicaRefused", "AuthenticationFailed", "LockNotAvailable"}
_END_SECONDS = 60.0


@dataclass(frozen=True)
class Recalled:
    """One recall: where it searched, when it began, its error's reason, and the ids and texts that it gave."""

    where: str
    began: float
    error: str | None
    texts: Sequence[tuple[int, str]]


@dataclass(frozen=True)
class Marked:
    """A memory that was to become sensitive, and when the commit was confirmed, by the clock of the recalls.

    Of one whose commit was not confirmed (None) nobody knows whether it is sensitive.
    """

    id: int
    at: float | None


def given_away(
    recalls: Sequence[Recalled], marks: Sequence[Marked], texts: Mapping[int, str], lasting: Collection[int]
) -> list[tuple[str, int]]:
    """Return where, and of which memory, a recall gave the text that began after the memory became sensitive.

    `lasting` are the memories that still are sensitive: a failover to a replica may lose the last commits.
    """
    since = {mark.id: mark.at for mark in marks if mark.at is not None and mark.id in lasting}
    return [
        (one.where, identity)
        for one in recalls
        for identity, content in one.texts
        if identity in since and one.began > since[identity] and texts[identity] in content
    ]


class Recalling:
    """The recalls and marks of a running loop, as far as it has printed them."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.recalls: list[Recalled] = []
        self.marks: list[Marked] = []
        self._process = process
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            given: dict[str, Any] = json.loads(line)
            if "where" in given:
                self.recalls.append(Recalled(**given))
            else:
                self.marks.append(Marked(**given))

    def end(self) -> None:
        """Let the loop end by itself, and wait until everything that it printed is read."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(_END_SECONDS) == 0
        finally:
            self._process.kill()
            self._reader.join()

    def answered(self, where: str) -> list[Recalled]:
        """Return the recalls that were answered."""
        return [one for one in self.recalls if one.where == where and one.error is None and one.texts]

    def errors(self, where: str, *, since: int = 0) -> list[str]:
        """Return the reasons of the recalls that were refused, without the first `since` recalls of all."""
        return [one.error for one in self.recalls[since:] if one.where == where and one.error is not None]

    def wait_answered(self, *places: str) -> None:
        """Wait until recalls that begin from now on are answered everywhere."""
        begun = {where: len(self.answered(where)) for where in places}
        eventually(
            lambda: {where: len(self.answered(where)) - begun[where] for where in places},
            lambda more: all(count > 3 for count in more.values()) or self._process.poll() is not None,
            what=f"recalls answered on {' and '.join(places)}",
        )
        assert self._process.poll() is None, "the recalls ended by themselves"

    def wait_marked(self) -> None:
        """Wait until three more memories have become sensitive."""
        marked = self._confirmed()
        eventually(self._confirmed, lambda count: count > marked + 2, what="memories marked")

    def _confirmed(self) -> int:
        return sum(mark.at is not None for mark in self.marks)


@contextmanager
def replay_paused(postgres: Postgres) -> Iterator[None]:
    """Let the only replica replay nothing until the block ends."""
    (replica,) = postgres.replicas()
    postgres.psql("SELECT pg_wal_replay_pause()", instance=replica)
    try:
        state = "SELECT pg_get_wal_replay_pause_state()"
        eventually(lambda: postgres.psql(state, instance=replica), "paused".__eq__, what="the replica lags")
        yield
    finally:
        postgres.psql("SELECT pg_wal_replay_resume()", instance=replica)


@contextmanager
def recalling(tenant: Tenant, marked: Sequence[Row]) -> Iterator[Recalling]:
    """Recall in the tenant's toolbox on the primary and on replicas until the block ends.

    The memories `marked` are added before, become sensitive one after the other, and are deleted at the end. Then no
    recall may have given the text of one that became sensitive before the recall began, no error may be another than
    the documented ones, and the answer of a replica without a pool of the primary must have been refused.
    """
    tenant.add(marked)
    command = ("exec", "-i", TOOLBOX, "--", "python", "-c", SCRIPT.read_text(encoding="utf-8"))
    process = subprocess.Popen(
        tenant.cluster.kubectl_command("-n", tenant.name, *command),
        # Over a websocket kubectl can never say that its input has ended once one of its pings was late.
        env=os.environ | {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"marked": [(row.id, row.content) for row in marked]}) + "\n")
    process.stdin.flush()
    running = Recalling(process)
    try:
        yield running
    finally:
        running.end()
    texts = {row.id: row.content for row in marked}
    ids = tenant.sql("SELECT json_agg(id) FROM memories WHERE is_sensitive")
    tenant.as_owner(f"DELETE FROM memories WHERE id BETWEEN {min(texts)} AND {max(texts)}")
    lasting = texts.keys() & {*json.loads(ids)}
    assert len(lasting) > 3
    assert given_away(running.recalls, running.marks, texts, lasting) == []
    assert {one.error for one in running.recalls} - {None} <= DOCUMENTED
    assert running.errors("replicas alone") == ["ReplicaRefused"]
