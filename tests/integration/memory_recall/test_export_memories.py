"""An export holds every memory that may leave and nothing else, and an import takes it back."""

import asyncio
import json
import os
import re
import stat
import sys
from pathlib import Path

import pytest

from memory_recall.postgres.connection import DsnText, connect
from memory_recall.schema.table import describe
from memory_recall.transfer.import_jsonl import ImportResult, import_memories
from tests.integration.memory_recall.workbench import Workbench
from tests.support.memory_command import run_memory

SECRET, DELETED = "the sensitive canary", "the deleted canary"


async def export(bench: Workbench, file: str) -> tuple[int, bytes, bytes]:
    ended = await run_memory(["export", file, "--json"], bench.environment())
    return ended.status, ended.output, ended.errors


async def imported(bench: Workbench, content: bytes) -> ImportResult:
    connection = await connect(DsnText(bench.database.dsn))
    try:
        return await import_memories(connection, await describe(connection, "memories"), content.splitlines())
    finally:
        connection.terminate()


async def fill(bench: Workbench) -> None:
    await bench.execute(
        f"""
        INSERT INTO memories (content, is_sensitive, deleted_at, category, tags, importance, user_id, created_at) VALUES
            ('plain', false, NULL, 'facts', 'a,b', 0.3, 'me', '2024-05-01 10:00:00.123456+02'),
            ('{SECRET}', true, NULL, 'facts', '', 0.5, 'me', now()),
            ('{DELETED}', false, now(), 'facts', '', 0.5, 'me', now()),
            ('{SECRET} {DELETED}', true, now(), 'facts', '', 0.5, 'me', now()),
            ('  ', false, NULL, 'facts', '', 0.5, 'me', now()),
            ('umlaut ä, quote ", newline \n end', false, NULL, NULL, NULL, NULL, 'you', now())
        """
    )


async def test_sensitive_and_deleted_rows_are_left_out_and_counted(bench: Workbench, tmp_path: Path) -> None:
    await fill(bench)
    file = tmp_path / "memories.jsonl"
    code, output, errors = await export(bench, str(file))
    assert code == 0, errors
    assert json.loads(output) == {"exported": 2, "left_out": {"sensitive": 1, "deleted": 2, "blank": 1}}
    text = file.read_text()
    assert SECRET not in text
    assert DELETED not in text
    first, second = (json.loads(line) for line in text.splitlines())
    assert first == {
        "id": 1, "content": "plain", "category": "facts", "tags": "a,b", "expanded_keywords": "", "importance": 0.3,
        "user_id": "me", "created_at": "2024-05-01T08:00:00.123456+00:00",
    }  # fmt: skip
    assert second["content"] == 'umlaut ä, quote ", newline \n end'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_what_was_exported_is_imported_without_a_change(bench: Workbench, tmp_path: Path) -> None:
    await fill(bench)
    await bench.execute("INSERT INTO memories (content, importance) SELECT 'text ' || n, n / 3000.0 "
                        "FROM generate_series(1, 2500) n")  # fmt: skip
    await bench.backfill()
    before = await bench.value("SELECT md5(string_agg(m::text, ',' ORDER BY id)) FROM memories m")
    file = tmp_path / "memories.jsonl"
    await export(bench, str(file))
    again = await imported(bench, file.read_bytes())
    assert (again.read, again.inserted, again.updated) == (2502, 0, 0)
    assert await bench.value("SELECT md5(string_agg(m::text, ',' ORDER BY id)) FROM memories m") == before
    assert await bench.embedded() == 2502

    await bench.execute("TRUNCATE memories")
    assert (await imported(bench, file.read_bytes())).inserted == 2502
    other = tmp_path / "again.jsonl"
    await export(bench, str(other))
    given = {"category", "tags", "expanded_keywords", "importance"}  # by an import where a line has none
    kept, new = (
        [{name: value for name, value in json.loads(line).items() if name not in given} for line in path.open()]
        for path in (file, other)
    )
    assert new == kept


@pytest.mark.parametrize("kind", ["real", "double precision", "numeric", "numeric(3,2)"])
async def test_an_importance_of_any_type_is_exported_as_the_number_that_it_is(
    bench: Workbench, tmp_path: Path, kind: str
) -> None:
    await bench.execute(f"ALTER TABLE memories ALTER COLUMN importance TYPE {kind}")
    await bench.execute("INSERT INTO memories (content, importance) VALUES ('one', 0.3), ('two', 0.85), ('none', NULL)")
    file = tmp_path / "memories.jsonl"
    code, _output, errors = await export(bench, str(file))
    assert code == 0, errors
    assert [json.loads(line).get("importance") for line in file.open()] == [0.3, 0.85, None]


async def test_no_importance_of_a_row_makes_an_export_that_cannot_be_imported(bench: Workbench, tmp_path: Path) -> None:
    """Whoever writes a row could otherwise make a backup unusable, since an import is all or nothing."""
    await bench.execute(
        "INSERT INTO memories (content, importance) VALUES ('ten', 10), ('less', -2.5), ('none', 'NaN'), "
        "('most', 'Infinity')"
    )
    file = tmp_path / "memories.jsonl"
    code, _output, errors = await export(bench, str(file))
    assert code == 0, errors
    await bench.execute("TRUNCATE memories")
    assert (await imported(bench, file.read_bytes())).inserted == 4
    found = await bench.value("SELECT array_agg(importance ORDER BY id) FROM memories WHERE content IN ('ten', 'less')")
    assert found == [10, -2.5]


@pytest.mark.parametrize("kind", ["real", "double precision", "numeric", "numeric(4,3)", "smallint"])
async def test_an_export_changes_no_importance_of_any_type(bench: Workbench, tmp_path: Path, kind: str) -> None:
    await bench.execute(f"ALTER TABLE memories ALTER COLUMN importance TYPE {kind}")
    await bench.execute(
        "INSERT INTO memories (content, importance) SELECT 'text ' || n, n / 7.0::numeric(20, 19) "
        "FROM generate_series(0, 7) n UNION ALL VALUES ('0.3', 0.3), ('0.12345678901234567890123', "
        "0.12345678901234567890123), ('none', NULL)"
    )
    state = "SELECT string_agg(content || coalesce(importance::text, ''), ',' ORDER BY id) FROM memories"
    before, file = await bench.value(state), tmp_path / "memories.jsonl"
    await export(bench, str(file))
    again = await imported(bench, file.read_bytes())
    assert (again.updated, again.unchanged) == (0, 11)
    assert await bench.value(state) == before

    edited = file.read_bytes().replace(b'"text 1"', b'"edited"').replace(b'"0.1234', b'"edited 0.1234')
    assert (await imported(bench, edited)).updated == 2
    assert await bench.value(state) == before.replace("text 1", "edited").replace(",0.1234", ",edited 0.1234", 1)


@pytest.mark.parametrize("kind", ["text[]", "varchar[]", "varchar(20)[]"])
async def test_keywords_in_an_array_are_exported_and_imported_as_they_are(
    bench: Workbench, tmp_path: Path, kind: str
) -> None:
    await bench.execute(
        "ALTER TABLE memories DROP COLUMN search_vector CASCADE, ALTER COLUMN expanded_keywords DROP DEFAULT, "
        f"ALTER COLUMN expanded_keywords TYPE {kind} USING '{{}}'"
    )
    await bench.execute("""INSERT INTO memories (content, expanded_keywords) VALUES
        ('several', '{"a, b",c,NULL}'), ('empty', '{}'), ('none', NULL)""")
    before = await bench.value("SELECT md5(string_agg(m::text, ',' ORDER BY id)) FROM memories m")
    file = tmp_path / "memories.jsonl"
    code, _output, errors = await export(bench, str(file))
    assert code == 0, errors
    again = await imported(bench, file.read_bytes())
    assert (again.updated, again.unchanged) == (0, 3)
    assert await bench.value("SELECT md5(string_agg(m::text, ',' ORDER BY id)) FROM memories m") == before
    await imported(bench, b'{"id": 9, "content": "as a text", "expanded_keywords": "x,y"}\n{"id": 10, "content": "z"}')
    new = "SELECT string_agg(expanded_keywords::text, ' ' ORDER BY id) FROM memories WHERE id > 8"
    assert await bench.value(new) == "{x,y} {}"


async def test_what_the_table_can_hold_is_imported_whatever_its_length_or_sign(
    bench: Workbench, tmp_path: Path
) -> None:
    await bench.execute(
        "ALTER TABLE memories DROP COLUMN search_vector CASCADE, ALTER COLUMN category TYPE text, "
        "ALTER COLUMN user_id TYPE text"
    )
    await bench.execute(
        "INSERT INTO memories (id, content, category, user_id) OVERRIDING SYSTEM VALUE "
        "SELECT n, 'text', repeat('c', 51), repeat('u', 101) FROM unnest(ARRAY[-7, 0, 1]) n"
    )
    file = tmp_path / "memories.jsonl"
    await export(bench, str(file))
    assert (await imported(bench, file.read_bytes())).unchanged == 3
    await bench.execute("TRUNCATE memories")
    assert (await imported(bench, file.read_bytes())).inserted == 3
    assert await bench.value("SELECT array_agg(id ORDER BY id) FROM memories") == [-7, 0, 1]


async def test_a_row_that_became_sensitive_stays_so_when_an_old_export_is_imported(
    bench: Workbench, tmp_path: Path
) -> None:
    await bench.insert("public once")
    file = tmp_path / "memories.jsonl"
    await export(bench, str(file))
    await bench.execute("UPDATE memories SET is_sensitive = true")
    await imported(bench, file.read_bytes())
    assert await bench.value("SELECT is_sensitive FROM memories") is True


async def test_an_export_of_long_texts_holds_a_few_of_them_at_a_time(bench: Workbench) -> None:
    """A hundred of four million characters are 400 MB; ten of them, and what reads them, are less than half of it."""
    await bench.execute("ALTER TABLE memories DROP COLUMN search_vector CASCADE")
    await bench.execute("INSERT INTO memories (content) SELECT repeat('x', 4000000) FROM generate_series(1, 100)")
    measured = (
        "import atexit, sys; from memory_recall.cli.app import main; "
        "atexit.register(lambda: print(open('/proc/self/status').read(), file=sys.stderr)); main()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", measured, "export", "-", "--json", env={**os.environ, **bench.environment()},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _output, errors = await process.communicate()
    result, _, process_status = errors.decode().partition("\n")
    assert json.loads(result)["exported"] == 100
    most = re.search(r"VmHWM:\s*(\d+) kB", process_status)
    assert most
    assert int(most[1]) < 270_000


async def test_an_existing_file_is_never_overwritten(bench: Workbench, tmp_path: Path) -> None:
    await bench.insert("text")
    file = tmp_path / "memories.jsonl"
    file.write_text("precious")
    code, output, errors = await export(bench, str(file))
    assert code == 1
    assert json.loads(errors)["reason"] == "InvalidInput"
    assert output == b""
    assert file.read_text() == "precious"


async def test_standard_output_carries_memories_alone(bench: Workbench) -> None:
    await bench.insert("text")
    code, output, errors = await export(bench, "-")
    assert code == 0
    assert json.loads(output)["content"] == "text"
    assert json.loads(errors)["exported"] == 1


@pytest.mark.parametrize("place", ["missing/memories.jsonl", "."])
async def test_a_path_that_cannot_be_written_is_named(bench: Workbench, tmp_path: Path, place: str) -> None:
    code, _output, errors = await export(bench, str(tmp_path / place))
    assert code == 1
    assert str(tmp_path / place) in json.loads(errors)["message"]


async def test_an_export_that_fails_half_way_leaves_no_file(bench: Workbench, tmp_path: Path) -> None:
    await bench.execute("INSERT INTO memories (content) SELECT repeat('x', 2000) || n FROM generate_series(1, 3000) n")
    file = tmp_path / "memories.jsonl"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c",
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)); "
        "from memory_recall.cli.app import main; sys.argv[1:] = ['export', sys.argv[1], '--json']; main()",
        str(file),
        env={**os.environ, **bench.environment()}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _output, errors = await process.communicate()
    assert process.returncode == 1
    assert json.loads(errors)["reason"] == "InvalidInput"
    assert not file.exists()
