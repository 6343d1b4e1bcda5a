"""Memories that newer ones replace: they are proposed, applied on consent, told by recalls, and undone."""

import asyncio
import json
import os
import stat
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from memory_recall import EVERYONE, Everyone, InvalidInput, RecallQuery, SortBy
from memory_recall.contrib.curation import candidates_sql
from memory_recall.contrib.curation.decisions import Action, Decider
from memory_recall.contrib.curation.finding import find_proposals, too_long
from memory_recall.contrib.curation.journal_sql import Applied, apply_proposals, steps, undo
from memory_recall.contrib.curation.proposal_file import Proposal
from memory_recall.errors import DatabaseRejected
from memory_recall.indexing.companions.sweeping import sweep_hashes
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.revisions import require_schema
from memory_recall.search import hybrid_recall
from tests.integration.conftest import Database
from tests.integration.memory_recall.read_path.vectors import axis
from tests.integration.memory_recall.workbench import Ear
from tests.support.memory_command import run_memory

OLD = "The resolver of the house is pihole in the cupboard."
NEW = "Pihole is replaced: the resolver of the house is adguard now."
NEWEST = "Adguard gave way: the resolver of the house is technitium now."
LINKS = """
CREATE TABLE memory_links (
    id serial PRIMARY KEY, user_id text NOT NULL, src_id integer NOT NULL REFERENCES memories,
    dst_id integer NOT NULL REFERENCES memories, link_type text NOT NULL CHECK (link_type <> 'refused'),
    UNIQUE (user_id, src_id, dst_id, link_type))"""
QUERY = RecallQuery("resolver of the house pihole", user_id=EVERYONE)


async def add(memories: Any, content: str, year: int, **options: Any) -> int:
    """A memory about the resolver; all have one direction."""
    given = {"tags": "network,pihole", "vector": axis(1.0, 0.1), "user_id": "ana", **options}
    return int(await memories.add(content, created_at=datetime(year, 1, 1, tzinfo=UTC), **given))


async def found(memories: Any, **options: Any) -> list[Proposal]:
    async with memories.pool.acquire() as connection:
        table = await require_schema(connection, "memories")
        proposals = await find_proposals(connection, table, **{"user": None, "since": None, **options})
    return [one for one in proposals if one.action is not Action.ADD]


async def applied(memories: Any, *proposals: Proposal) -> Applied:
    async with memories.pool.acquire() as connection:
        return await apply_proposals(connection, await require_schema(connection, "memories"), proposals)


async def undone(memories: Any, *, run: int | None = None, everything: bool = False) -> int:
    async with memories.pool.acquire() as connection:
        table = await require_schema(connection, "memories")
        return await undo(connection, table, run=run, everything=everything)


async def supersede(memories: Any, older: int, newer: int) -> Applied:
    """Apply one proposal without a finder."""
    hashes = [
        await memories.pool.fetchval("SELECT memory_index_text_hash(content) FROM memories WHERE id = $1", one)
        for one in (older, newer)
    ]
    proposal = Proposal(
        action=Action.SUPERSEDE, decided_by=Decider.RULES, id=older, superseded_by=newer, score=1.0, older="", newer="",
        text_hash=hashes[0], successor_hash=hashes[1],
    )  # fmt: skip
    return await applied(memories, proposal)


async def recalled(memories: Any, embedder: Any, query: RecallQuery = QUERY) -> list[tuple[int, int | None]]:
    """The ids of a recall in order, each with that of its successor; a new recall knows of what was just applied."""
    result = await memories.recalling(embedder, parallel_legs=False).recall(query)
    return [(one.id, one.superseded_by) for one in result.memories]


async def fill(memories: Any) -> None:
    for number in range(12):
        await memories.add(f"note {number} of the garden", vector=axis(0.0, 1.0, number / 10), user_id="ana")


async def test_only_what_its_owner_may_share_and_nothing_that_is_superseded_is_ever_proposed(memories: Any) -> None:
    """A sensitive or deleted row, another user's row and a superseded one stay unread, on either side of a pair."""
    await fill(memories)
    older, newer = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    await add(memories, f"{OLD} sensitive", 2023, sensitive=True, vector=None)
    await add(memories, f"{NEW} sensitive", 2026, sensitive=True, vector=None)
    await add(memories, f"{OLD} deleted", 2023, deleted=True, vector=None)
    await add(memories, f"{NEW} of another", 2026, user_id="ben")
    proposals = await found(memories)
    assert [(one.id, one.superseded_by, one.action) for one in proposals] == [(older, newer, Action.SUPERSEDE)]
    assert await applied(memories, *proposals) == Applied(run=1, applied=1, skipped=0, links=0)
    assert await found(memories) == []
    newest = await add(memories, f"Once more: {NEW}", 2026)
    assert {one.id for one in await found(memories)} == {newer}
    assert await found(memories, user="ben") == []
    assert [one.superseded_by for one in await found(memories, since=datetime(2026, 1, 1, tzinfo=UTC))] == [newest]


async def test_memories_that_are_too_long_are_left_out_and_counted(memories: Any) -> None:
    """Neither a newer nor an older one is read; one that is as long as a compared memory may be is read."""
    await fill(memories)
    older, newer = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    long = candidates_sql.MAX_CHARACTERS
    await add(memories, OLD.ljust(long + 1, "."), 2023)
    await add(memories, NEW.ljust(long + 1, "ü"), 2026)
    assert [(one.id, one.superseded_by) for one in await found(memories)] == [(older, newer)]
    async with memories.pool.acquire() as connection:
        table = await require_schema(connection, "memories")
        assert [await too_long(connection, table, user=user) for user in (None, "ana", "ben")] == [2, 2, 0]
    longest = await add(memories, NEW.ljust(long, "ü"), 2026)
    assert longest in {one.superseded_by for one in await found(memories)}


async def test_a_recall_puts_the_newest_of_a_chain_first_and_says_which_are_superseded(
    memories: Any, embedder: Any
) -> None:
    """Whatever their own scores are; what was found without them keeps its place among them."""
    await fill(memories)
    ids = [await add(memories, OLD, 2024, importance=0.9), await add(memories, NEW, 2025, importance=0.1)]
    ids.append(await add(memories, NEWEST, 2026, importance=0.0, vector=axis(1.0, 3.0)))
    before = await recalled(memories, embedder)
    assert before[0] == (ids[0], None)
    await supersede(memories, ids[0], ids[1])
    await supersede(memories, ids[1], ids[2])
    expected = [(ids[2], None), (ids[1], ids[2]), (ids[0], ids[2])]
    after = await recalled(memories, embedder)
    assert after[:3] == expected
    assert [one for one, _ in after[3:]] == [one for one, _ in before if one not in ids]
    by_date = await recalled(memories, embedder, replace(QUERY, sort_by=SortBy.RECENCY))
    assert by_date[:3] == expected
    assert (await recalled(memories, None, replace(QUERY, mode="lexical")))[:3] == expected
    rows = await memories.recalling(embedder).recall_rows(QUERY)
    assert [row.get("superseded_by") for row in rows[:3]] == [None, ids[2], ids[2]]
    assert "superseded_by" not in rows[0]


async def test_the_recall_in_three_parts_orders_superseded_memories_as_the_one_statement_does(
    filled: Any, embedder: Any, fetched: Any
) -> None:
    """Same ids, successors and scores."""
    query = RecallQuery("zfs scrub of the pool", user_id="default", limit=30)
    first = await filled.recalling(embedder, parallel_legs=False).recall(query)
    for older, newer in ((first.ids[0], first.ids[7]), (first.ids[3], first.ids[9])):
        await filled.pool.execute("UPDATE memories SET created_at = now() - interval '1 day' WHERE id = $1", older)
        assert (await supersede(filled, older, newer)).applied == 1
    one = await filled.recalling(embedder, parallel_legs=False).recall(query)
    three = await filled.recalling(embedder).recall(query)
    assert [(m.id, m.superseded_by, m.rank) for m in three.memories] == [
        (m.id, m.superseded_by, m.rank) for m in one.memories
    ]
    assert one.ids[:2] == [first.ids[7], first.ids[0]]


async def test_without_curation_the_recall_statement_knows_nothing_of_it(
    memories: Any, embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before the first proposal is applied nor after the last is undone."""
    older, newer = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    sent: list[str] = []

    async def watched(connection: Any, plan: Any) -> Any:
        answer = await executing(connection, plan)
        sent.append(answer.sent[0])
        return answer

    executing = hybrid_recall.execute
    monkeypatch.setattr(hybrid_recall, "execute", watched)
    before = await recalled(memories, embedder)
    await supersede(memories, older, newer)
    assert await recalled(memories, embedder) == [(newer, None), (older, newer)]
    assert await undone(memories) == 1
    assert await recalled(memories, embedder) == before
    assert [text.count("supersed") > 0 for text in sent] == [False, True, False]
    assert sent[0] == sent[2]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memories SET content = content || ' Or not.' WHERE id = {older}",
        "UPDATE memories SET content = content || ' Or not.' WHERE id = {newer}",
        "UPDATE memories SET is_sensitive = true WHERE id = {newer}",
        "UPDATE memories SET deleted_at = now() WHERE id = {newer}",
    ],
)
async def test_a_memory_is_superseded_only_while_both_texts_stand(memories: Any, embedder: Any, change: str) -> None:
    """An edited, sensitive or deleted memory is no longer what was compared; the journal is not asked again."""
    older, newer = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    await supersede(memories, older, newer)
    await memories.pool.execute(change.format(older=older, newer=newer))
    assert (older, None) in await recalled(memories, embedder, replace(QUERY, user_id=Everyone()))


@pytest.mark.promise("journal-reveals-no-text")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memories SET content = 'a word' WHERE id = {}",
        "UPDATE memories SET is_sensitive = true WHERE id = {}",
        "UPDATE memories SET deleted_at = now() WHERE id = {}",
        "DELETE FROM memories WHERE id = {}",
    ],
)
@pytest.mark.parametrize("place", [0, 1])
async def test_a_text_cannot_be_guessed_from_the_journal_once_it_is_gone(
    memories: Any, change: str, place: int
) -> None:
    """The hashes, of which anybody may compute more, go with the text, whichever of the two memories it was."""
    pair = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    await supersede(memories, *pair)
    assert all(await memories.pool.fetchrow("SELECT text_hash, successor_hash FROM memory_supersessions"))
    await memories.pool.execute(change.format(pair[place]))
    assert not any(await memories.pool.fetchrow("SELECT text_hash, successor_hash FROM memory_supersessions"))


@pytest.mark.promise("proposals-without-sensitive-text")
async def test_a_memory_that_becomes_sensitive_while_pairs_are_sought_is_not_read(
    memories: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(memories)
    older = await add(memories, OLD, 2024)
    await add(memories, NEW, 2025)
    read = candidates_sql._read_memories

    async def late(*arguments: Any, **options: Any) -> Any:
        await memories.pool.execute("UPDATE memories SET is_sensitive = true WHERE id = $1", older)
        return await read(*arguments, **options)

    assert [one.id for one in await found(memories)] == [older]
    monkeypatch.setattr(candidates_sql, "_read_memories", late)
    assert await found(memories) == []


async def test_neither_an_edit_nor_a_deletion_waits_for_a_run_that_is_being_undone(memories: Any) -> None:
    pair = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    await supersede(memories, *pair)
    async with memories.pool.acquire() as other, other.transaction():
        await other.execute("SELECT FROM memory_supersessions FOR UPDATE")
        async with asyncio.timeout(10):
            await memories.pool.execute("UPDATE memories SET content = 'a word' WHERE id = $1", pair[0])
            await memories.pool.execute("DELETE FROM memories WHERE id = $1", pair[1])


async def test_a_memory_that_is_being_edited_is_skipped_and_not_waited_for(memories: Any) -> None:
    older, newer = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    async with memories.pool.acquire() as other, other.transaction():
        await other.execute("UPDATE memories SET content = content || '!' WHERE id = $1", older)
        async with asyncio.timeout(10):
            assert (await supersede(memories, older, newer)).skipped == 1


async def test_an_entry_about_another_owner_s_memory_has_no_effect(memories: Any, embedder: Any) -> None:
    older, newer = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    await supersede(memories, older, newer)
    await memories.pool.execute("UPDATE memories SET user_id = 'ben' WHERE id = $1", newer)
    assert (older, None) in await recalled(memories, embedder, replace(QUERY, user_id=Everyone()))


async def test_a_proposal_about_texts_that_have_changed_is_skipped(memories: Any) -> None:
    """Also one whose successor is not newer, not its owner's, or sensitive or deleted by now."""
    await fill(memories)
    await add(memories, OLD, 2024)
    newer = await add(memories, NEW, 2025)
    (proposal,) = await found(memories)
    backwards = proposal.model_copy(
        update={"id": newer, "superseded_by": proposal.id, "text_hash": proposal.successor_hash,
                "successor_hash": proposal.text_hash}
    )  # fmt: skip
    assert (await applied(memories, backwards)).skipped == 1
    for change in (
        "user_id = 'ben'",
        "user_id = 'ana', is_sensitive = true",
        "is_sensitive = false, deleted_at = now()",
        "deleted_at = NULL, content = content || '!'",
    ):
        await memories.pool.execute(f"UPDATE memories SET {change} WHERE id = $1", newer)
        assert await applied(memories, proposal) == Applied(run=None, applied=0, skipped=1, links=0)


async def test_the_memory_api_s_own_link_comes_and_goes_with_the_journal(memories: Any) -> None:
    """A link of the user's own stays, and a memory that it supersedes is not proposed."""
    await fill(memories)
    await memories.pool.execute(LINKS)
    older, newer = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    assert (await applied(memories, *await found(memories))).links == 1
    assert tuple(await memories.pool.fetchrow("SELECT user_id, src_id, dst_id, link_type FROM memory_links")) == (
        "ana", newer, older, "supersedes",
    )  # fmt: skip
    assert await undone(memories, everything=True) == 1
    assert await memories.pool.fetchval("SELECT count(*) FROM memory_links") == 0
    await memories.pool.execute(
        "INSERT INTO memory_links (user_id, src_id, dst_id, link_type) VALUES ('ana', $1, $2, 'supersedes')",
        newer,
        older,
    )
    assert await found(memories) == []
    assert (await supersede(memories, older, newer)).applied == 0
    assert await memories.pool.fetchval("SELECT count(*) FROM memory_links") == 1


async def test_a_run_that_breaks_off_has_applied_nothing(memories: Any) -> None:
    """The journal and the links are one transaction."""
    await memories.pool.execute(LINKS.replace("'refused'", "'supersedes'"))
    older, newer = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    with pytest.raises((DatabaseRejected, asyncpg.CheckViolationError)):
        await supersede(memories, older, newer)
    assert await memories.pool.fetchval("SELECT count(*) FROM memory_supersessions") == 0


async def test_runs_are_undone_one_by_one_and_every_step_stays_in_the_journal(memories: Any) -> None:
    """The last one first, or one by its number; undoing nothing is refused where a run was named."""
    ids = [await add(memories, text, 2024 + number) for number, text in enumerate((OLD, NEW, NEWEST))]
    await supersede(memories, ids[0], ids[1])
    await supersede(memories, ids[1], ids[2])
    assert await undone(memories) == 1
    async with memories.pool.acquire() as connection:
        journal = await steps(connection, await require_schema(connection, "memories"))
    assert [(one.run, one.id, one.undone_at is None) for one in journal] == [(2, ids[1], False), (1, ids[0], True)]
    assert await undone(memories, run=1) == 1
    assert await undone(memories) == 0
    with pytest.raises(InvalidInput):
        await undone(memories, run=1)


async def standing(memories: Any) -> list[tuple[int, int, bool]]:
    """Return run, memory and whether its mark stands, of every step in the journal, newest first."""
    async with memories.pool.acquire() as connection:
        journal = await steps(connection, await require_schema(connection, "memories"))
    return [(one.run, one.id, one.undone_at is None) for one in journal]


@pytest.mark.parametrize("place", [0, 1])
async def test_an_edit_ends_the_mark_and_the_memory_is_proposed_anew(memories: Any, place: int) -> None:
    """The journal says so, and undoing undoes what was applied since."""
    await fill(memories)
    pair = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    assert (await applied(memories, *await found(memories))).applied == 1
    await memories.pool.execute(
        "UPDATE memories SET content = content || ' Really.', embedding = NULL WHERE id = $1", pair[place]
    )
    await memories.pool.execute(
        "UPDATE memories SET embedding = o.embedding FROM memories o WHERE memories.id = $1 AND o.id = $2",
        pair[place],
        pair[1 - place],
    )
    assert await standing(memories) == [(1, pair[0], False)]
    with pytest.raises(InvalidInput):
        await undone(memories, run=1)
    proposals = await found(memories)
    assert [(one.id, one.superseded_by) for one in proposals] == [pair]
    assert (await applied(memories, *proposals)).applied == 1
    assert await standing(memories) == [(2, pair[0], True), (1, pair[0], False)]
    assert await undone(memories) == 1
    assert await standing(memories) == [(2, pair[0], False), (1, pair[0], False)]


async def test_the_end_of_a_mark_is_never_before_its_beginning(memories: Any) -> None:
    """Also where the transaction of the edit began before the mark was made."""
    pair = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    async with memories.pool.acquire() as other, other.transaction():
        await other.fetchval("SELECT now()")
        await supersede(memories, *pair)
        await other.execute("UPDATE memories SET content = 'a word' WHERE id = $1", pair[0])
    assert await memories.pool.fetchval("SELECT undone_at > applied_at FROM memory_supersessions")


@pytest.mark.parametrize("cleared_by", ["apply", "undo", "sweep"])
async def test_the_memory_api_s_own_link_goes_when_its_mark_has_ended(
    memories: Any, database: Database, cleared_by: str
) -> None:
    """And it does not keep the memory from being proposed meanwhile. A link of the user's own stays."""
    await fill(memories)
    await memories.pool.execute(LINKS)
    older, newer = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    third = await add(memories, "The kettle is red.", 2026, vector=axis(0.0, 0.0, 0.0, 1.0))
    assert (await applied(memories, *await found(memories))).links == 1
    await memories.pool.execute(
        "INSERT INTO memory_links (user_id, src_id, dst_id, link_type) VALUES ('ana', $1, $2, 'supersedes')",
        newer,
        third,
    )
    await memories.pool.execute(
        "UPDATE memories SET content = content || ' Really.', embedding = NULL WHERE id = $1", older
    )
    await memories.pool.execute(
        "UPDATE memories SET embedding = o.embedding FROM memories o WHERE memories.id = $1 AND o.id = $2", older, newer
    )
    proposals = await found(memories)
    assert [one.id for one in proposals] == [older]
    if cleared_by == "apply":
        assert (await applied(memories, *proposals)).links == 1
        assert await memories.pool.fetchval("SELECT count(*) FROM memory_links WHERE dst_id = $1", older) == 1
        assert await undone(memories) == 1
    elif cleared_by == "undo":
        assert await undone(memories, everything=True) == 0
    else:
        stop = asyncio.Event()
        task = asyncio.create_task(sweep_hashes(DsnText(database.dsn), "memories", Ear(), stop, every_seconds=0.05))
        async with asyncio.timeout(10):
            while await memories.pool.fetchval("SELECT count(link_id) FROM memory_supersessions"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        stop.set()
        await task
    assert [row["dst_id"] for row in await memories.pool.fetch("SELECT dst_id FROM memory_links")] == [third]


async def run_command(database: Database, *arguments: str) -> tuple[int, str, str]:
    ended = await run_memory(["curate", *arguments], {"MEMORY_DATABASE_URL": database.dsn})
    return ended.status, ended.output.decode(), ended.errors.decode()


async def run_command_after(statement: str, database: Database, *arguments: str) -> tuple[int, str, str]:
    """Run a command in a new process after a Python statement."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", f"{statement}\nfrom memory_recall.cli.app import main\nmain()", "curate", *arguments,
        env={**os.environ, "MEMORY_DATABASE_URL": database.dsn},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


async def test_the_command_applies_nothing_without_consent_and_prints_no_text(
    memories: Any, database: Database, tmp_path: Path
) -> None:
    """The texts are in the file alone, which only its owner may read and which is never replaced."""
    await fill(memories)
    older, newer = await add(memories, OLD, 2024), await add(memories, NEW, 2025)
    file = tmp_path / "proposals.jsonl"
    printed = []
    for arguments, expected in (
        (
            ("find", str(file), "--everyone"),
            {"ADD": 0, "UPDATE": 0, "SUPERSEDE": 1, "NOOP": 0, "not_written": 0, "too_long": 0, "file": str(file)},
        ),
        (("apply", str(file)), {"to_apply": 1, "applied": 0}),
        (("apply", str(file), "--consent"), {"run": 1, "applied": 1, "skipped": 0, "links": 0}),
        (("undo",), {"undone": 1}),
    ):
        code, output, errors = await run_command(database, *arguments, "--json")
        assert (code, json.loads(output)) == (0, expected), errors
        printed.append(output + errors)
    code, output, errors = await run_command(database, "find", str(file), "--user", "ana")
    assert code != 0
    assert "exists already" in errors
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    line = json.loads(file.read_text())
    assert (line["id"], line["superseded_by"], line["older"], line["newer"]) == (older, newer, OLD, NEW)
    assert "cupboard" not in "".join([*printed, output, errors])


async def test_the_command_counts_what_it_has_written_and_says_how_much_it_has_not(
    memories: Any, database: Database, tmp_path: Path
) -> None:
    await fill(memories)
    for text, year in ((OLD, 2024), (NEW, 2025), (NEWEST, 2026)):
        await add(memories, text, year)
    one = "from memory_recall.contrib.curation import proposal_file as file; file.MAX_PROPOSALS = 1"
    counts = []
    for number, run in enumerate((run_command, partial(run_command_after, one))):
        path = tmp_path / f"{number}.jsonl"
        code, output, errors = await run(database, "find", str(path), "--everyone", "--json")
        assert code == 0, errors
        found = json.loads(output)
        written = sum(found[one.value] for one in Action)
        assert written == len(path.read_text().splitlines())
        counts.append((written, found["not_written"]))
    assert counts[0][0] > 1
    assert counts == [(counts[0][0], 0), (1, counts[0][0] - 1)]
