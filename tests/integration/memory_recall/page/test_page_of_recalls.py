"""A person tries recalls and looks at the index, by keyboard alone, in a real browser."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.integration.memory_recall.browser import Browser, driven
from tests.integration.memory_recall.page.serving import served
from tests.integration.memory_recall.read_path.test_evaluate_command import TEXTS, fill
from tests.integration.memory_recall.workbench import Workbench

MARKUP = "<img src=x onerror=alert(1)> & <b>zigbee</b>"
CANARY = "canary PIN 4711"
ROWS = f"""
INSERT INTO memories (content, user_id) VALUES ('{MARKUP}', 'c1');
INSERT INTO memories (content, user_id, is_sensitive) VALUES ('{CANARY} of the zigbee dongle', 'c1', true);
UPDATE memory_index_models SET usual_cosine = 0.9;
"""
_CONTENTS = "[...document.querySelectorAll(`#${arguments[0]} .content`)].map((one) => one.textContent)"


class Trying(Browser):
    """A browser that shows the view of recalls."""

    def ask(self, question: str) -> None:
        """Type a question, press Enter and wait for the answer."""
        self.answered("document.activeElement.id === 'query'")
        self.send(question + Keys.ENTER)
        self.answered("document.getElementById('asked').textContent === arguments[0]", question)

    def go_back(self) -> None:
        """Give the focus to what is before what has it."""
        ActionChains(self.driver).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()

    def contents(self, group: str) -> list[str]:
        """The texts of the memories in a group, `recalled` or `held`, in their order."""
        return [str(one) for one in self.run(f"return {_CONTENTS}", group)]

    def item(self, content: str) -> str:
        """What is shown of the memory with this text."""
        found = self.driver.find_elements("css selector", "#found li")
        (text,) = [one.text for one in found if content in one.text]
        return str(text)

    def level(self) -> str:
        """The level as assistive technology says it."""
        return str(self.run("return document.getElementById('level').getAttribute('aria-valuetext')"))

    def facts(self) -> dict[str, str]:
        """The state of the index by its names, once it is shown."""
        found = self.answered(
            "document.querySelector('#facts dt') && [...document.querySelectorAll('#facts dt')]"
            ".map((one) => [one.textContent, one.nextSibling.textContent])"
        )
        return {str(name): str(value) for name, value in found}


@asynccontextmanager
async def page_process(bench: Workbench, *options: str) -> AsyncIterator[tuple[str, Any]]:
    """The address of the page that `memory page` serves in a process of its own, and the process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "memory_recall", "page", *options,
        env={**os.environ, **bench.environment()}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            first = (await process.stderr.readline()).decode()
        found = re.search(r"http://\S+", first)
        assert found is not None, first
        yield found[0], process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def try_a_recall(address: str) -> None:
    with driven() as driver:
        page = Trying(driver, address)
        page.ask(TEXTS[0])
        everything = page.contents("recalled")
        assert everything[0] == TEXTS[0]
        assert MARKUP in everything
        assert page.contents("held") == []
        item = page.item(TEXTS[0])
        assert re.search(r"place 1 · score 0\.\d{4} · relevance 1\.00\nlexical: rank 1, score .* · dense: rank 1", item)
        assert "total" in page.text("times")
        page.send(Keys.TAB + Keys.ARROW_RIGHT)
        assert page.level() == "0.01 or more"
        assert page.contents("recalled")[0] == TEXTS[0]
        held = page.contents("held")
        assert TEXTS[1] in held
        assert page.text("counted") == f"{len(everything) - len(held)} shown, {len(held)} held back."
        why = page.item(TEXTS[1])
        assert re.search(r"Held back, since its relevance 0\.\d{3} is below 0\.01\. Its cosine is ", why)
        assert "where 0.900 is usual for a prompt that no memory fits" in why
        page.send(Keys.ARROW_LEFT)
        assert page.level() == "everything"
        assert (page.contents("recalled"), page.contents("held")) == (everything, [])
        page.send(Keys.TAB + Keys.TAB + Keys.ENTER)
        assert page.level() == "likely: 0.15 or more (0.10 by words alone)"
        assert CANARY not in driver.page_source
        assert "[SENSITIVE" in driver.page_source
        page.send(Keys.ESCAPE)
        page.ask("where is the certificate?")
        assert "certificate" in page.text("asked")
        assert {urlsplit(one).netloc for one in page.loaded()} == {urlsplit(address).netloc}


def try_without_the_embedder(address: str) -> None:
    with driven() as driver:
        page = Trying(driver, address)
        page.ask("zigbee dongle")
        assert page.text("notes").startswith("Words alone answered, without meaning: EmbedderFailed: the embedder did")
        assert "Words alone decided, since the recall was by words alone" not in page.text("recalled")
        page.send(Keys.TAB + Keys.END)
        assert "Words alone decided, since the recall was by words alone" in page.text("held")
        end(page)


def end(page: Trying) -> None:
    """Press the last button of the page."""
    page.send(Keys.TAB + Keys.TAB + Keys.TAB + Keys.TAB + Keys.ENTER)
    page.wait("return document.body.textContent.startsWith('This page has ended.')")


def look_at_the_index_and_end(address: str) -> None:
    with driven() as driver:
        page = Trying(driver, address)
        page.answered("document.activeElement.id === 'query'")
        page.go_back()
        page.send(Keys.ARROW_RIGHT)
        facts = page.facts()
        counts = {name: facts[name] for name in ("Memories", "Embedded", "Pending", "Sensitive, without a vector")}
        assert list(counts.values()) == ["6", "4", "1", "1"]
        assert facts["Active model"] == "tiny, 8 dimensions"
        assert facts["Usual cosine"] == "0.900"
        assert facts["Vector index"].endswith("valid")
        page.send(Keys.TAB + Keys.TAB + Keys.ENTER)
        page.wait("return document.body.textContent.startsWith('This page has ended.')")


@pytest.mark.promise("page-loads-nothing")
async def test_a_memory_is_held_back_by_the_level_that_the_keyboard_chooses_and_the_page_says_why(
    bench: Workbench,
) -> None:
    """The table's usual cosine lets only the memory pass whose text is the question.

    A sensitive memory is masked, and no question is in what the command prints and logs.
    """
    await fill(bench)
    await bench.execute(ROWS)
    async with page_process(bench, "--user", "c1") as (address, process):
        await asyncio.to_thread(try_a_recall, address)
        bench.embedder.behaviour = lambda _texts: (500, {}, b"")
        await asyncio.to_thread(try_without_the_embedder, address)
        async with asyncio.timeout(60):
            out, errors = await process.communicate()
    assert (process.returncode, out) == (0, b"")
    assert b"zigbee" not in errors


async def test_the_view_of_the_index_shows_the_counts_and_the_page_ends_its_server(bench: Workbench) -> None:
    await fill(bench)
    await bench.execute(ROWS)
    async with page_process(bench, "--everyone") as (address, process):
        await asyncio.to_thread(look_at_the_index_and_end, address)
        async with asyncio.timeout(60):
            out, errors = await process.communicate()
    assert (process.returncode, out) == (0, b"")
    assert b"Traceback" not in errors


def try_before_relevance_is_known(address: str) -> None:
    with driven() as driver:
        page = Trying(driver, address)
        page.ask(TEXTS[0])
        assert page.text("notes").startswith("Nothing is held back: the usual cosine of this table is not found yet")
        assert "relevance not known" in page.item(TEXTS[0])
        assert page.run(
            "return [...document.querySelectorAll('#demand input, #demand button')].every((one) => one.disabled)"
        )


async def test_before_the_usual_cosine_is_found_no_level_can_be_chosen_and_the_page_says_why(bench: Workbench) -> None:
    await fill(bench)
    async with page_process(bench, "--everyone") as (address, _):
        await asyncio.to_thread(try_before_relevance_is_known, address)


def ask_in_vain(address: str) -> None:
    with driven() as driver:
        page = Trying(driver, address)
        page.answered("document.activeElement.id === 'query'")
        page.send("zigbee" + Keys.ENTER)
        assert page.said() == "DatabaseUnreachable: The database does not answer.\nStart it."
        assert not page.run("return document.getElementById('found').checkVisibility()")


async def test_a_database_that_is_away_is_told_in_a_sentence() -> None:
    async with served() as (address, _):
        await asyncio.to_thread(ask_in_vain, address)
