"""The Python of the library's documents runs as it stands there, and imports from the package or its optional parts."""

import asyncio
import os
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.memory_recall.fake_embedder import vector_of
from tests.integration.memory_recall.tls_front import Authority
from tests.support.sqlite_schema import create_schema

ROOT = Path(__file__).parents[3]
README, GUIDE = ROOT / "recall" / "README.md", ROOT / "docs" / "recall.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
TEXT = "the zigbee dongle hangs"
GIVEN_BY_THE_READER = """
import asyncpg
from fastapi import FastAPI

class Embedder:
    async def embed_query(self, text):
        return [0.0]

pool, embedder, app = asyncpg.create_pool("postgresql://nobody@127.0.0.1:1/nothing"), Embedder(), FastAPI()
replicas = primary = pool
def current_user_id():
    return "ana"
"""


def blocks(document: Path) -> str:
    found = BLOCK.findall(document.read_text())
    assert found
    return "\n".join(found)


async def run(program: str, environment: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("document", [README, GUIDE], ids=["README", "guide"])
def test_documents_import_from_the_top_of_the_package_or_an_optional_part(document: Path) -> None:
    """A reader need not know the rooms."""
    assert "from memory_recall import" in blocks(document)
    assert re.findall(r"(?:from|import) memory_recall\.(?!contrib\.\w+ )\S+", document.read_text()) == []


async def test_the_readme_s_examples_recall_from_postgres_and_sqlite(bench: Any, tmp_path: Path) -> None:
    """With nothing around them but the two addresses and the file that they name."""
    async with bench.database.connection() as connection:
        vector = [float(number) for number in vector_of(TEXT, 8)]
        insert = "INSERT INTO memories (content, embedding) VALUES ($1, $2::real[]::halfvec)"
        await connection.execute(insert, TEXT, vector)
    file = tmp_path / "cache.sqlite"
    cache = sqlite3.connect(file)
    create_schema(cache)
    cache.execute("INSERT INTO memories (content) VALUES ('a zigbee dongle in a cache')")
    cache.commit()
    names = {
        "DATABASE_URL": bench.database.dsn,
        "EMBEDDER_URL": bench.embedder.url,
        "MODEL": bench.embedder.model,
        "CACHE_FILE": str(file),
    }
    given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    shown = await run(given + blocks(README), {})
    assert TEXT in shown
    assert "a zigbee dongle in a cache" in shown


def test_the_guide_shows_how_an_api_is_told_the_prefixes_of_a_model_without_a_profile() -> None:
    """No recall notices that one is missing."""
    assert re.search(r'query_prefix="[^"]+", document_prefix="[^"]+"', blocks(GUIDE))


async def test_the_guide_s_examples_run(tmp_path: Path) -> None:
    """Beside what they say that the reader has: pools, an embedder, its authority, an application and its users."""
    (tmp_path / "ca.crt").write_text(Authority().certificate)
    examples = blocks(GUIDE).replace('"/var/run/embedder-ca"', repr(str(tmp_path)))
    await run(f"EMBEDDER_URL = 'http://127.0.0.1:9'\n{GIVEN_BY_THE_READER}\n{examples}", {})
