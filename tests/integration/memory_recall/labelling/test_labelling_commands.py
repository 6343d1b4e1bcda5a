"""Every command of the page about labelling, in its order, over a real database; and what the commands refuse."""

import asyncio
import json
import re
import shlex
import stat
import tomllib
from collections import Counter
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest
from click.testing import Result

from memory_recall.cli import page
from tests.integration.memory_recall.read_path.test_evaluate_command import TEXTS, fill
from tests.support.invoked_command import invoke_memory

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "labelling.md"
CANARY = "canary PIN 4711"
SENSITIVE = "INSERT INTO memories (content, user_id, is_sensitive) VALUES ('%s about zigbee', 'c1', true)"


def memory(*arguments: str, given: str = "") -> Result:
    return invoke_memory(arguments, given=given)


def documented() -> list[list[str]]:
    """The words of each command of the page, without the name of the program."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("memory ")]
    return [shlex.split(line)[1:] for line in lines]


def write_sources() -> None:
    """What the page says that a reader has: questions of their own, and requests that the API has logged."""
    mine = [json.dumps({"text": f"question {number}: {TEXTS[number % 4]}"}) for number in range(25)]
    Path("mine.jsonl").write_text("\n".join(mine))
    request = {"expanded_query": "", "user_id": "c1", "is_sensitive": False}
    logged = [json.dumps(request | {"context": f"logged {number} zigbee"}) for number in range(5)]
    logged.append(json.dumps(request | {"context": CANARY, "is_sensitive": True}))
    Path("requests.jsonl").write_text("\n".join(logged))


def check_files() -> None:
    """All questions were exported, by their strata; no file holds the sensitive text, or is readable by others."""
    exported = [json.loads(line)["stratum"] for line in Path("questions.jsonl").read_text().splitlines()]
    assert Counter(exported) == {"paraphrase": 4, "exact": 25, "logged": 5}
    assert CANARY not in "".join(path.read_text() for path in Path().iterdir() if path.name != "requests.jsonl")
    assert "<svg" in Path("report.html").read_text()
    for name in ("labels.json", "questions.jsonl", "report.html"):
        assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600, name


def end_page(addresses: "Queue[str]") -> None:
    """End the page's server as its key q does."""
    address = addresses.get(timeout=60)
    origin = address.rsplit("/", 2)[0]
    assert httpx.get(address).status_code == 200
    assert httpx.post(f"{address}finish", json={}, headers={"Origin": origin}).status_code == 200


@pytest.fixture
def settings(bench: Any, few_fusions: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The settings of the commands, and a folder of their own."""
    for name, value in bench.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


async def test_every_command_of_the_page_runs_and_no_sensitive_text_is_in_what_they_say_or_write(
    bench: Any, settings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four memories get questions, 25 questions are imported and five logged ones drawn; every memory is relevant."""
    await fill(bench)
    await bench.execute(SENSITIVE % CANARY)
    write_sources()
    addresses: Queue[str] = Queue()
    monkeypatch.setattr(page, "announce_page", addresses.put)
    answers = "".join(f"what about {number}?\n" for number in range(4)) + "3\n" * 200
    results: dict[str, Result] = {}
    for words in documented():
        running = asyncio.create_task(asyncio.to_thread(memory, *words, given=answers))
        if words[0] == "page":
            await asyncio.to_thread(end_page, addresses)
        done = results[" ".join(words)] = await running
        assert done.exit_code == 0, (words, done.output)
        assert CANARY not in done.output
    said = results["questions judge labels.json"].output
    assert "Everything is judged." in said
    assert "Stratum paraphrase has 4 questions" in said
    check_files()


def test_the_extras_that_the_page_installs_exist() -> None:
    (extras,) = re.findall(r"pip install './recall\[([a-z,]+)\]'", PAGE.read_text())
    project = tomllib.loads((ROOT / "recall" / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--draw, --import or --logged-queries"),
        (["--draw", "3"], "--user or --everyone"),
        (["--draw", "3", "--everyone", "--user", "ana"], "--user or --everyone"),
        (["--logged-queries", "requests.jsonl"], "--consent"),
    ],
)
def test_what_has_to_be_said_is_asked_for(options: list[str], said: str, tmp_path: Path) -> None:
    """Above all whether those whose queries they are agree."""
    done = memory("questions", "collect", str(tmp_path / "labels.json"), *options)
    assert done.exit_code == 2
    assert said in " ".join(re.sub(r"[│\n]", " ", done.stderr).split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["questions judge", "questions pool", "questions export", "page --everyone"])
def test_a_file_that_nothing_was_collected_in_is_named(command: str, tmp_path: Path) -> None:
    done = memory(*command.split(), str(tmp_path / "labels.json"), "--json")
    assert done.exit_code == 1
    assert "memory questions collect" in json.loads(done.stderr)["message"]


@pytest.mark.parametrize("command", ["questions export", "page --everyone"])
def test_an_export_does_not_replace_the_labels(command: str, tmp_path: Path) -> None:
    labels, mine = tmp_path / "labels.json", tmp_path / "mine.jsonl"
    mine.write_text('{"text": "zigbee"}')
    memory("questions", "collect", str(labels), "--import", str(mine))
    before = labels.read_bytes()
    done = memory(*command.split(), str(labels), "--output", f"{tmp_path}/./labels.json", "--json")
    assert "holds the labels" in json.loads(done.stderr)["message"]
    assert labels.read_bytes() == before


async def test_questions_cannot_be_pooled_without_the_dense_leg(
    bench: Any, settings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers would never be judged, and count as wrong."""
    await fill(bench)
    write_sources()
    imported = await asyncio.to_thread(
        memory, *["questions", "collect", "labels.json", "--import", "mine.jsonl", "--json"]
    )
    assert json.loads(imported.stdout) == {"imported": {"added": 25, "repeated": 0}, "questions": 25}
    monkeypatch.delenv("MEMORY_EMBEDDER_URL")
    done = await asyncio.to_thread(memory, "questions", "judge", "labels.json", "--json")
    assert done.exit_code == 1
    assert "MEMORY_EMBEDDER_URL" in done.stderr
