"""The runbook for a restore tries the rule about sensitive rows with tables of other names, and changes no row."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import asyncpg

from tests.delivery.pages import read_page
from tests.integration.memory_recall.other_tables.conftest import Store
from tests.integration.memory_recall.read_path.vectors import DIMENSIONS
from tests.support.documents import ROOT

PAGE = ROOT / "docs" / "runbooks" / "restore.md"
SENSITIVE = {
    "notes": "secret",
    "documents": "coalesce(confidential, 1) <> 0",
    "mem0": "payload->'access'->>'private' NOT IN ('false', '0')",
}
WITHOUT_RULES = """
DO $$ DECLARE rule record; BEGIN
    FOR rule IN SELECT tgrelid::regclass AS place, tgname AS name FROM pg_trigger WHERE NOT tgisinternal LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', rule.name, rule.place);
    END LOOP;
    FOR rule IN SELECT conrelid::regclass AS place, conname AS name FROM pg_constraint
                 WHERE contype = 'c' AND conrelid = '{table}'::regclass LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', rule.place, rule.name);
    END LOOP;
END $$
"""


def check_of_the_page(store: Store, folder: Path) -> int:
    """The exit status of the page's block with the statements, whose kubectl is the psql of this database."""
    page = read_page(PAGE)
    (block,) = [block for block in page.blocks if "PROBE=" in block]
    (function,) = re.findall(r"(?ms)^SQL\(\) \{.*?; \}$", page.assignments)
    psql = [str(store.database.server.program("psql")), store.database.superuser_dsn, "-At", "-c"]
    program = folder / "kubectl"
    program.write_text(f'#!/bin/bash\ncase "$*" in *psql*) exec {shlex.join(psql)} "${{@: -1}}" ;; esac\n')
    program.chmod(0o755)
    names = {
        "POSTGRES_NAMESPACE": "dbaas", "POSTGRES": "pg", "NAMESPACE": "notes", "INDEX": "notes", "DATABASE": "notes",
        "TABLE": store.shape.name, "SENSITIVE": SENSITIVE[store.shape.name], "VECTOR": store.table.names.embedding,
    }  # fmt: skip
    environment = {**os.environ, **names, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", f"{function}\n{block}"], env=environment, check=False)
    return done.returncode


async def vectors(store: Store) -> list[asyncpg.Record]:
    return await store.pool.fetch(f"SELECT ctid, {store.table.names.embedding} FROM {store.shape.name} ORDER BY ctid")


async def test_the_rule_is_tried_and_no_row_is_changed(store: Store, tmp_path: Path) -> None:
    await store.add("open", vector=[1.0] * DIMENSIONS)
    for text in ("secret", "hidden"):
        await store.add(text, sensitive=True)
    before = await vectors(store)
    assert check_of_the_page(store, tmp_path) == 0
    assert await vectors(store) == before


async def test_a_table_that_has_lost_its_rules_is_found_out(store: Store, tmp_path: Path) -> None:
    await store.add("open", vector=[1.0] * DIMENSIONS)
    await store.add("secret", sensitive=True)
    await store.pool.execute(WITHOUT_RULES.format(table=store.shape.name))
    before = await vectors(store)
    assert check_of_the_page(store, tmp_path) != 0
    assert await vectors(store) == before
