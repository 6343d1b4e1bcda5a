"""A stranger's store recalls by meaning from docs/adopt.md alone: its files and its commands, run as they stand there.

The page's shell runs in a folder of its own, with the programs of this virtual environment, psql of the test's Postgres
and a database of the test. `make setup`, which the page presupposes, has made what runs the test.
"""

import asyncio
import json
import os
import re
import socket
import sys
from pathlib import Path

from tests.integration.conftest import Database

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "adopt.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^(?:#|--) (\w+\.\w+)\n")
SECONDS = 120


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def script(dsn: str) -> str:
    """The commands of the page in its order; only its first block, which names what is the reader's own, is changed."""
    first, *others = [text for kind, text in BLOCK.findall(PAGE) if kind == "sh"]
    ports = dict(zip(("EMBEDDER_PORT", "PROBE_PORT", "API_PORT"), free_ports(3), strict=True))
    assert re.findall(r"([A-Z_]+)=", first) == ["DATABASE_URL", *ports]
    own = "".join(f"export {name}={value}\n" for name, value in {"DATABASE_URL": dsn, **ports}.items())
    # Whatever fails, nothing that the page has started outlives it.
    return "\n".join(["set -eu", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT", own, *others])


async def run(directory: Path, commands: str, environment: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", commands, cwd=directory, env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-4000:]
    return out.decode()


async def test_a_store_of_another_shape_recalls_by_meaning_from_the_page_alone(
    database: Database, tmp_path: Path
) -> None:
    """Another table name, sensitivity as an integer, no tags, no users; pinned notes first, by its own code."""
    for kind, text in BLOCK.findall(PAGE):
        if kind != "sh":
            name = FILE.match(text)
            assert name is not None, f"a block does not begin with the name of its file: {text[:60]}"
            (tmp_path / name[1]).write_text(text)
    programs = (str(Path(sys.executable).parent), str(database.server.program("psql").parent), os.environ["PATH"])
    paths = (ROOT / "recall", ROOT / "embedder-service", os.environ.get("PYTHONPATH", ""))
    shown = await run(
        tmp_path,
        script(database.dsn),
        {"PATH": ":".join(programs), "PYTHONPATH": ":".join(map(str, paths)), "NO_COLOR": "1"},
    )
    (line,) = [line for line in shown.splitlines() if '"author"' in line]
    answer = json.loads(line[line.index("[{") :].split("]")[0] + "]")
    assert {row["content"] for row in answer} >= {"The boiler in the cellar loses pressure every winter."}
    assert [row["pinned"] for row in answer] == sorted((row["pinned"] for row in answer), reverse=True)
    async with database.connection() as connection:
        counts = await connection.fetchrow(
            "SELECT count(embedding), count(embedding) FILTER (WHERE is_sensitive <> 0) FROM notes"
        )
        assert tuple(counts) == (3, 0)
