"""Every command of docs/graph.md does what the page says, run as it stands there, in the page's order."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.integration.memory_recall.graph.workbench import links
from tests.integration.memory_recall.workbench import Workbench
from tests.support.memory_command import run_memory

PAGE = (Path(__file__).parents[4] / "docs" / "graph.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [shlex.split(line, comments=True) for block in BLOCKS for line in block.splitlines()]
ENABLE, STATUS, FILL, DISABLE, SHOW = COMMANDS
SECRET = "Marit hides a key under the stone."


async def run(bench: Workbench, command: list[str], *more: str) -> tuple[int, str, str]:
    assert command[0] == "memory"
    ended = await run_memory([*command[1:], *more], bench.environment())
    return ended.status, ended.output.decode(), ended.errors.decode()


async def answer(bench: Workbench, command: list[str], *more: str) -> dict[str, Any]:
    code, output, errors = await run(bench, command, "--json", *more)
    assert code == 0, errors
    found: dict[str, Any] = json.loads(output)
    return found


async def insert(bench: Workbench) -> None:
    await bench.execute(
        "INSERT INTO memories (content, user_id, is_sensitive) VALUES"
        " ('Marit restarted nas-01.', 'ana', false), ('Marit and Tobin moved nas-01.', 'ana', false),"
        f" ('Marit sings.', 'tobin', false), ('{SECRET}', 'ana', true)"
    )


async def test_the_page_s_commands_enable_fill_show_and_disable_the_graph(bench: Workbench) -> None:
    """With counts as --json prints them; enabling twice changes nothing, and nothing is left in the end."""
    await insert(bench)
    assert await answer(bench, STATUS) == {
        "enabled": False, "exists": False, "kept": False, "queued": False, "filled": False,
        "pending": 0, "oldest": None, "links": 0, "memories": 0, "differences": "",
    }  # fmt: skip
    found = await answer(bench, ENABLE)
    assert (found["changed"], found["enabled"], found["filled"], found["pending"]) == (True, True, False, 3)
    found = await answer(bench, FILL)
    assert (found["changed"], found["filled"], found["pending"], found["memories"]) == (False, True, 0, 3)
    assert await answer(bench, STATUS) == {name: value for name, value in found.items() if name != "changed"}
    assert await answer(bench, SHOW) == {
        "concept": "marit",
        "memories": 2,
        "more": False,
        "newest": [
            {"id": 2, "content": "Marit and Tobin moved nas-01.", "concepts": ["nas-01"]},
            {"id": 1, "content": "Marit restarted nas-01.", "concepts": ["nas-01"]},
        ],
        "sharing": 1,
        "shared": [{"concept": "nas-01", "memories": 2}],
    }
    assert not (await answer(bench, DISABLE))["enabled"]
    assert await bench.value("SELECT to_regclass('memory_concepts')") is None


async def test_for_people_the_neighbourhood_is_a_list_of_lines_without_secrets(bench: Workbench) -> None:
    """Among everybody's memories, those of all users are listed, and sensitive ones never."""
    await insert(bench)
    await answer(bench, FILL)
    code, output, errors = await run(bench, [*SHOW[:4], "--everyone"])
    assert code == 0, errors
    assert output.splitlines() == [
        "marit: 3 memories",
        "  3: Marit sings.",
        "  2: Marit and Tobin moved nas-01.",
        "  1: Marit restarted nas-01.",
        "Concepts that they share:",
        "  nas-01: 2",
    ]
    await bench.execute("UPDATE memories SET is_sensitive = true WHERE id = 2")
    _, output, _ = await run(bench, SHOW)
    assert output.splitlines() == ["marit: 1 memories", "  1: Marit restarted nas-01."]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "Say with --user or --everyone"),
        (("--user", "ana", "--everyone"), "Say with --user or --everyone"),
        (("--everyone",), "has no concept graph"),
    ],
)
async def test_show_says_what_is_missing(bench: Workbench, more: tuple[str, ...], message: str) -> None:
    """Whose memories are meant, or the graph itself."""
    code, _, errors = await run(bench, SHOW[:4], *more)
    assert code != 0
    assert message in " ".join(errors.replace("│", " ").split())


async def test_migrating_restores_an_enabled_graph_and_no_other(bench: Workbench) -> None:
    """Also after a new key of the text hash; migrating to base leaves nothing of the graph."""
    await insert(bench)
    migrate = ["memory", "migrate"]
    await answer(bench, migrate)
    assert not (await answer(bench, STATUS))["enabled"]
    await answer(bench, FILL)
    await bench.execute("DROP FUNCTION memory_index_text_hash")
    await answer(bench, migrate)
    found = await answer(bench, STATUS)
    assert (found["differences"], found["pending"], found["links"], found["filled"]) == ("", 3, 0, False)
    await answer(bench, FILL)
    async with bench.database.connection() as connection:
        assert set(await links(connection)) == {1, 2, 3}
    await answer(bench, migrate, "--to", "base", "--yes")
    left = await bench.value(
        "SELECT array_agg(name) FROM (SELECT relname AS name FROM pg_class UNION ALL SELECT proname FROM pg_proc"
        " UNION ALL SELECT tgname FROM pg_trigger) o WHERE name ~ 'memory_(index_)?(graph|concept)'"
    )
    assert left is None
