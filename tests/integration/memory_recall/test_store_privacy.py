"""No memory text, connection string or password reaches an error, a log, an exit message or the termination log."""

import asyncio
import json
import sys
import traceback
from pathlib import Path

import pytest

from memory_recall.errors import DatabaseRejected, MemoryIndexError
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.postgres.connection import DsnFile, DsnText, connect
from memory_recall.postgres.driver_errors import translated
from tests.integration.conftest import Database
from tests.integration.memory_recall.workbench import Workbench
from tests.support.memory_command import run_memory
from tests.support.postgres_instance import APP_PASSWORD

CANARY = "canary-of-a-memory"


async def _memory(*arguments: str, termination_log: Path | None = None, **environment: str) -> tuple[int, str]:
    ended = await run_memory(arguments, environment, termination_log=termination_log)
    return ended.status, (ended.output + ended.errors).decode()


@pytest.mark.promise("no-text-or-secret-in-outputs")
async def test_an_error_of_postgres_that_quotes_the_row_is_withheld_even_from_tracebacks(database: Database) -> None:
    connection = await connect(DsnText(database.dsn))
    await connection.execute("CREATE TABLE t (content text UNIQUE CHECK (length(content) < 100))")
    await connection.execute("INSERT INTO t VALUES ($1)", CANARY)
    for statement, value in (
        ("INSERT INTO t VALUES ($1)", CANARY),
        ("INSERT INTO t VALUES ($1)", CANARY * 10),
        ("SELECT $1::text::integer", CANARY),
        ("INSERT INTO t VALUES ($1)", f"{CANARY}\ud800"),
    ):
        with pytest.raises(DatabaseRejected) as caught, translated("testing"):
            await connection.execute(statement, value)
        seen: BaseException | None = caught.value
        while seen is not None:
            shown = "".join(traceback.format_exception(seen, chain=True)) + repr(vars(seen)) + repr(seen.args)
            assert CANARY not in shown
            seen = seen.__cause__ or seen.__context__
    connection.terminate()


async def test_sources_and_rows_hide_their_content_when_printed(tmp_path: Path) -> None:
    file = tmp_path / "dsn"
    file.write_text(f"postgresql://u:{CANARY}@h/d")
    shown = repr([DsnText(f"postgresql://u:{CANARY}@h/d"), DsnFile(file), PendingRow(1, CANARY, "hash")])
    assert CANARY not in shown


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://app:{CANARY}@127.0.0.1:1/nowhere",
        f"postgresql://app:{CANARY}@[broken/nowhere",
        f"mysql://app:{CANARY}@host/db",
        f"host=127.0.0.1 password={CANARY}",
        f"postgresql://app:{CANARY}@127.0.0.1:port/db",
    ],
)
async def test_a_bad_connection_string_is_refused_without_being_repeated(dsn: str, tmp_path: Path) -> None:
    log = tmp_path / "termination"
    log.touch()
    code, output = await _memory("status", "--json", MEMORY_DATABASE_URL=dsn, termination_log=log)
    assert code != 0
    assert CANARY not in output + log.read_text()
    record = json.loads(log.read_text())
    assert record["reason"] in {"DatabaseUnreachable", "InvalidConfiguration"}
    assert record["message"]


async def test_a_wrong_password_is_an_authentication_failure_and_is_not_quoted(database: Database) -> None:
    dsn = database.dsn.replace(APP_PASSWORD, CANARY)
    code, output = await _memory("status", "--json", MEMORY_DATABASE_URL=dsn)
    assert code == 1
    assert "AuthenticationFailed" in output
    assert CANARY not in output


async def test_a_malformed_setting_is_named_without_its_value() -> None:
    code, output = await _memory("status", "--json", MEMORY_INDEX_M=CANARY)
    assert code == 2
    assert "INDEX_M" in output
    assert CANARY not in output


async def test_a_backfill_full_of_failures_logs_no_text(bench: Workbench) -> None:
    await bench.insert(*(f"{CANARY} {number}" for number in range(20)))

    def behaviour(texts: list[str]) -> tuple[int, dict[str, str], bytes] | None:
        # A careless server echoes what it was sent.
        echo = json.dumps({"error": {"message": texts[0], "code": texts[0]}}).encode()
        return (422, {}, echo) if f"{CANARY} 7" in texts else (500, {}, echo) if f"{CANARY} 9" in texts else None

    bench.embedder.behaviour = behaviour
    code, output = await _memory(
        "backfill", **bench.environment(MEMORY_LOG_LEVEL="debug", MEMORY_BACKFILL_MAX_ATTEMPTS="2")
    )
    assert code == 0
    assert '"quarantined":2' in output
    assert CANARY not in output
    assert APP_PASSWORD not in output
    code, output = await _memory("quarantine", "list", "--json", **bench.environment())
    assert CANARY not in output
    assert "EmbedderRejected" in output


async def test_the_report_of_a_bug_names_the_exception_without_its_message() -> None:
    program = (
        "import memory_recall.cli.app as app\n"
        f"def broken(parts): raise ValueError('{CANARY}')\n"
        "app.create_app = broken\n"
        "app.main()\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 1
    assert b"ValueError" in output
    assert CANARY.encode() not in output


async def test_errors_of_our_own_are_not_translated() -> None:
    error = MemoryIndexError("ours")
    with pytest.raises(MemoryIndexError) as caught, translated("testing"):
        raise error
    assert caught.value is error
