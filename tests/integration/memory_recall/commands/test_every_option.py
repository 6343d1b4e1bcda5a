"""Every option of every command is given to a command that really runs, over texts that a terminal would obey.

The lines below run one after another over one database for each story. A test compares their options with those of the
command line, so that an option cannot be added without a line here. What the lines print shows no control character of
a memory.
"""

import asyncio
import json
import os
import shlex
import signal
import sqlite3
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from memory_recall.cli.app import create_app
from memory_recall.postgres.connection import DsnText, connect
from memory_recall.postgres.identity_sql import read_identity
from memory_recall.schema.claims_sql import TableClaim
from tests.integration.memory_recall.chat_server import NO, ChatServer
from tests.integration.memory_recall.read_path.test_evaluate_command import TEXTS, fill
from tests.integration.memory_recall.swap.conftest import SwapBench, swaps
from tests.integration.memory_recall.voyage_server import VoyageServer
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench, until
from tests.option_tree import options_given, options_of
from tests.support.invoked_command import invoke_memory
from tests.support.memory_command import run_memory
from tests.support.sqlite_schema import create_schema
from tests.unit.memory_recall.test_status_of_a_memory_index import ApiServer, api, kubeconfig, resource, serve

__all__ = ["api", "kubeconfig", "swaps"]  # fixtures

OBEYED = "".join(chr(code) for code in (*range(1, 0x20), *range(0x7F, 0xA0), 0x202E, 0x2066, 0xE0041))
HOSTILE = f"zigbee [/x] {OBEYED} dongle"
KEY = "key-canary"

READING = """
recall zigbee --user c1
recall zigbee --everyone --limit 3 --sort-by recency --explain
recall zigbee --everyone --mode lexical --json
recall zigbee --user c1 --category facts --tags home --tags other --since 2020-01-01T00:00:00Z --until 2100-01-01T00:00Z
recall zigbee --user c1 --sensitive --mode hybrid
recall zigbee --user c1 --expand {chat} --expand-model tiny-chat --expand-key-file key
recall zigbee --everyone --sqlite notes.db
evaluate --queries questions.jsonl --modes lexical,hybrid --concurrency 2 --report report.html
evaluate --queries questions.jsonl --modes lexical --expand {chat} --expand-model m --expand-key-file key --json
tune --queries questions.jsonl --output fusion.json --concurrency 2
tune --queries questions.jsonl --json
adopt memories
adopt memories --content content --json
status
status --json
status --truncated --limit 2
status --truncated --json
status --kube mem --namespace team --kubeconfig {kubeconfig} --context here
roles --worker worker --recall reader
"""
ADOPTING = """
adopt notes --json
adopt notes --content title --content body --column tags= --column "user_id=owner" --no-sensitive --json
adopt notes --content body --no-sensitive --fillfactor 85 --apply --existing-vectors refuse
adopt notes
"""
WRITING = """
import lines.jsonl
import lines.jsonl --json
export exported.jsonl
export exported-again.jsonl --json
export -
sync --json
backfill --dry-run --limit 2
backfill --json
quarantine list --limit 5
quarantine list --json
quarantine retry 1 2
quarantine retry --json
index build
index build --json
index check --sample 5 --repair-below 0.1
index check --json
migrate --to head --existing-vectors keep --claim {claim}
migrate --replaces uid-of-the-claim --json
migrate --to base --yes
"""
LABELLING = """
questions collect labels.json --draw 2 --user c1 --seed 3 --stratum written
questions collect labels.json --draw 1 --everyone
questions collect labels.json --import mine.jsonl --json
questions collect labels.json --logged-queries requests.jsonl --consent --sample 1
questions pool labels.json
questions pool labels.json --json
questions judge labels.json
questions judge labels.json --json
page labels.json --everyone --output judged.jsonl --json
page --user c1 --port 0
questions export labels.json --output exported-questions.jsonl
questions export labels.json --json
"""
RELATIONS = """
curate find by-rules.jsonl --user c1 --since 2020-01-01
curate find judged.jsonl --everyone --judge {judge} --judge-model m --judge-key-file key --judge-most 5 --json
curate apply by-rules.jsonl
curate apply by-rules.jsonl --consent --json
curate log
curate log --json
recall zigbee --everyone --least-relevance everything --max-tokens 1 --distinct --json
curate undo --run 1
curate apply by-rules.jsonl --consent
curate undo --all --json
graph enable --fill
graph enable --json
graph status
graph status --json
graph show zigbee --user c1
graph show zigbee --everyone --json
graph disable --keep
graph disable --json
"""
SWAPPING = """
swap plan --model small --url {next} --api-key-file key --sample 4
swap plan --model small --url {next} --without-api-key --api OpenAI --served-as small --json
swap start --model small --url {next} --without-api-key --without-gate --no-flip
swap status
swap status --json
swap abort --yes --json
swap start --model small --url {next} --api-key-file key --queries all.jsonl --qrels qrels.jsonl --max-drop 1 --flip
swap rollback --url {active} --api-key-file key
swap start --model small --url {next} --without-gate --json
swap rollback --url {active} --without-api-key --api OpenAI --served-as tiny --query-prefix q --document-prefix ""
swap start --model small --url {next} --without-gate --api OpenAI --served-as small --query-prefix q --document-prefix d
swap finish --yes
swap plan --model voyage-test --url {hosted} --api Voyage --api-key-file key --dimensions 8
swap start --model voyage-test --url {hosted} --api Voyage --api-key-file key --dimensions 8 --without-gate
swap finish --yes --json
swap start --model tiny --url {active} --without-gate
swap rollback --url {hosted} --api Voyage --api-key-file key --json
"""
STORIES = {
    "reading": READING, "adopting": ADOPTING, "writing": WRITING, "labelling": LABELLING, "relations": RELATIONS,
    "swapping": SWAPPING,
}  # fmt: skip
UNTIL_INTERRUPTED = ("sync", "page")
EXPECTED = {"adopt notes --json": 4, "status --kube": 3, "page": 130}  # others end with 0
WITH_SIGNALS = ("backfill --json", "swap start", "swap rollback")  # which a thread cannot take
ROWS = """
UPDATE memories SET category = 'facts', tags = 'home,other', created_at = '2026-01-01' WHERE id = 1;
INSERT INTO memories (content, category, tags, expanded_keywords, user_id, created_at) VALUES
    ($hostile$, left($hostile$, 50), $hostile$, $hostile$, 'c1', '2026-01-02'),
    ($hostile$ || ' the resolver of the house is pihole in the cupboard', 'facts', 'dns', '', 'c1', '2026-01-03'),
    ('Pihole is replaced: the resolver of the house is adguard now ' || $hostile$, 'facts', 'dns', '', 'c1', now());
UPDATE memories SET embedding = '[1,0,0,0,0,0,0,1]' WHERE embedding IS NULL AND id > 5;
INSERT INTO memory_embedding_failures (id, text_hash, attempts, error_class, next_attempt)
    SELECT id, memory_index_text_hash(content), 5, $hostile$, 'infinity' FROM memories WHERE embedding IS NULL;
"""


def lines_of(text: str) -> list[str]:
    return text.strip().splitlines()


def _heed_interrupts() -> None:
    """Undo what a shell does to the tests' own process, and so to its children, if it runs them in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Shell:
    """Runs lines of commands in a folder, and checks what they print."""

    def __init__(self, bench: Workbench, **more: str) -> None:
        self._environment = bench.environment(MEMORY_LOG_FORMAT="console", **more)
        self._embedder = bench.embedder

    async def run(self, lines: str, **names: object) -> None:
        """Run each line, in which `{name}` stands for one of the names."""
        for line in lines_of(lines):
            words = [word.format_map(names) for word in shlex.split(line)]
            expected = next((code for begin, code in EXPECTED.items() if line.startswith(begin)), 0)
            if line.startswith(UNTIL_INTERRUPTED):
                code, out, errors = await self._interrupted(words)
            elif line.startswith(WITH_SIGNALS):
                ended = await run_memory(words, self._environment)
                code, out, errors = ended.status, ended.output.decode(), ended.errors.decode()
            else:
                done = await asyncio.to_thread(self._invoke, words)
                code, out, errors = done.exit_code, done.stdout, done.stderr
            assert code == expected, (line, out, errors)
            assert not set(out + errors) & set(OBEYED) - set("\n\t"), line
            if "--json" in words and words[0] != "page" and "judge" not in words:
                json.loads(out)

    def _invoke(self, words: list[str]) -> Result:
        answers = "what is there?\n" + "3\n" * 200
        return invoke_memory(words, self._environment, given=answers)

    async def _interrupted(self, words: list[str]) -> tuple[int | None, str, str]:
        """Run a command that would go on for ever in a process of its own, and interrupt it when it has begun.

        A page has begun when its address is printed, and a worker when the embedder has got its first request.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "memory_recall", *words,
            env={**os.environ, **self._environment}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            preexec_fn=_heed_interrupts,
        )  # fmt: skip
        assert process.stderr is not None
        try:
            async with asyncio.timeout(120):
                first = b""
                if words[0] == "sync":
                    await until(lambda: self._embedder.requests)
                    process.send_signal(signal.SIGTERM)
                else:
                    first = await process.stderr.readline()
                    process.send_signal(signal.SIGINT)
                out, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode, out.decode(), (first + errors).decode()


@pytest.fixture
def folder(few_fusions: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the files that the lines name."""
    monkeypatch.chdir(tmp_path)
    asked = [
        {"query_id": str(n), "text": f"{TEXTS[n % 4]} {HOSTILE}", "stratum": HOSTILE, "relevant_ids": [n % 4 + 1]}
        for n in range(32)
    ]
    write("questions.jsonl", asked)
    write("mine.jsonl", [{"text": HOSTILE}])
    write("requests.jsonl", [{"context": HOSTILE, "expanded_query": "", "user_id": "c1", "is_sensitive": False}])
    write("lines.jsonl", [{"id": 90, "content": HOSTILE, "user_id": "c1"}])
    Path("key").write_text(KEY)
    with sqlite3.connect("notes.db") as file:
        create_schema(file)
        file.execute("INSERT INTO memories (content, category, importance) VALUES (?, ?, 0.5)", (HOSTILE, HOSTILE))
    file.close()
    return tmp_path


def write(name: str, lines: list[dict[str, Any]]) -> None:
    Path(name).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
async def hostile(bench: Workbench) -> Workbench:
    """Four memories with vectors, three whose texts a terminal would obey, and one whose embedding failed."""
    await fill(bench)
    await bench.execute(ROWS.replace("$hostile$", "$hostile$" + HOSTILE + "$hostile$"))
    return bench


@pytest.mark.finding("database F8")
def test_every_option_is_in_a_line() -> None:
    given = options_given(create_app(), [line for text in STORIES.values() for line in lines_of(text)])
    assert len(options_of(create_app())) > 30
    assert sorted(options_of(create_app()) - given) == []


@pytest.mark.finding("database F8")
@pytest.mark.finding("security S8")
async def test_reading(hostile: Workbench, folder: Path, api: ApiServer, kubeconfig: Path) -> None:
    seen = resource("False", reason="Backfilling")
    seen["status"]["conditions"][0]["message"] = HOSTILE
    serve(api, seen)
    async with ChatServer() as chat:
        shell = Shell(hostile)
        await shell.run(READING, chat=chat.url, kubeconfig=kubeconfig)


@pytest.mark.finding("database F6")
@pytest.mark.finding("security S8")
async def test_adopting(hostile: Workbench) -> None:
    """The names of columns are hostile as well."""
    await hostile.execute(
        f"""CREATE TABLE notes (id uuid PRIMARY KEY, title text, body text, owner text, "x{OBEYED}" text);
        INSERT INTO notes VALUES (gen_random_uuid(), $hostile${HOSTILE}$hostile$, $hostile${HOSTILE}$hostile$)"""
    )
    await Shell(hostile).run(ADOPTING)


@pytest.mark.finding("database F8")
@pytest.mark.finding("security S8")
async def test_writing(hostile: Workbench, folder: Path) -> None:
    connection = await connect(DsnText(hostile.database.dsn))
    identity = (await read_identity(connection)).system_identifier
    await connection.close()
    claim = {one.name: "x" for one in fields(TableClaim)}
    claim |= {"system_identifier": identity, "created_at": "2026-01-01T00:00:00Z", "uid": "uid-of-the-claim"}
    await Shell(hostile).run(WRITING, claim=json.dumps(claim))


@pytest.mark.finding("database F8")
@pytest.mark.finding("security S8")
async def test_labelling(hostile: Workbench, folder: Path) -> None:
    await Shell(hostile).run(LABELLING)


@pytest.mark.finding("database F8")
@pytest.mark.finding("security S8")
async def test_relations(hostile: Workbench, folder: Path) -> None:
    async with ChatServer(NO) as judge:
        await Shell(hostile).run(RELATIONS, judge=judge.url)


@pytest.mark.finding("database F8")
async def test_swapping(swaps: SwapBench, folder: Path) -> None:
    write("all.jsonl", [{"query_id": str(number), "text": f"text {number}"} for number in range(40)])
    write("qrels.jsonl", [{"query_id": str(number), "relevant_ids": [number + 1]} for number in range(40)])
    async with VoyageServer(dimensions=DIMENSIONS) as provider:
        shell = Shell(swaps.work, MEMORY_QUERY_EGRESS="allowed")
        await shell.run(SWAPPING, next=swaps.following.url, active=swaps.work.embedder.url, hosted=provider.url)
