"""A person looks at the neighbourhood of concepts in a real browser, over a real database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from memory_recall.graph import enable
from memory_recall.graph.page.app import page_app
from memory_recall.graph.page.reading import DatabaseReader
from memory_recall.local_page.server import serve_locally
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.table import describe
from tests.integration.memory_recall.browser import Browser, driven
from tests.integration.memory_recall.graph.workbench import fill
from tests.integration.memory_recall.workbench import Workbench

HOSTILE = (
    "Marit wrote <script>document.title = 'owned'</script><img src=x onerror=alert(1)> &amp; \"quoted\" on nas-01."
)
SECRETS = ("pelican-secret", "heron-deleted", "gannet-tobin")
ROWS = [
    ("Marit restarted nas-01.", "ana", "<b>rack</b>", "false", "NULL"),
    ("Marit and Tobin moved nas-01.", "ana", "<b>rack</b>", "false", "NULL"),
    (HOSTILE, "ana", "", "false", "NULL"),
    ("The backup of nas-01 failed.", "ana", "", "false", "NULL"),
    ("Marit hides the pelican-secret at nas-01.", "ana", "", "true", "NULL"),
    ("Marit sold the heron-deleted of nas-01.", "ana", "", "false", "now()"),
    ("Marit sings to the gannet-tobin at nas-01.", "tobin", "", "false", "NULL"),
]


async def graph(bench: Workbench) -> None:
    """Ana's memories 1 to 4 may be shown to her; the others are sensitive, deleted and Tobin's."""
    async with bench.database.connection() as connection:
        for content, user, tags, sensitive, deleted in ROWS:
            await connection.execute(
                "INSERT INTO memories (content, user_id, tags, is_sensitive, deleted_at)"
                f" VALUES ($1, $2, $3, {sensitive}, {deleted})",
                content, user, tags,
            )  # fmt: skip
        table = await describe(connection, "memories")
        await enable(connection, table)
        await fill(connection, table)


class Drawing(Browser):
    """The page in a browser, once it has drawn what it begins with."""

    def until_idle(self) -> None:
        self.wait("return document.readyState === 'complete' && !busy && part('whose').textContent !== ''")

    def names(self, kind: str) -> set[str]:
        """The full names of the nodes of a kind that are drawn."""
        return set(self.run(
            "return shown.nodes.filter((node, number) => node.kind === arguments[0] && groups[number].isConnected)"
            ".map((node) => node.name)", kind,
        ))  # fmt: skip

    @property
    def middle(self) -> str:
        return self.driver.find_element(By.CSS_SELECTOR, "svg .middle text").text

    def node(self, begin: str) -> Any:
        """The node whose name for screen readers begins so."""
        return self.driver.find_element(By.CSS_SELECTOR, f"svg [aria-label^='{begin}']")

    def click(self, begin: str) -> None:
        ActionChains(self.driver).move_to_element(self.node(begin)).click().perform()
        self.until_idle()

    def search(self, concept: str) -> None:
        """Ask for a concept by keyboard, from wherever the focus is."""
        if self.driver.switch_to.active_element.get_attribute("id") != "concept":
            self.send("/")
        self.send(concept + Keys.ENTER)
        self.until_idle()

    def source(self) -> str:
        return str(self.run("return document.documentElement.outerHTML + JSON.stringify(shown)"))


@asynccontextmanager
async def page(bench: Workbench, concept: str | None, user: str | None = "ana") -> AsyncIterator[Drawing]:
    """The page of this user's memories, or of everybody's, in a browser."""
    reader = DatabaseReader(DsnText(bench.database.dsn), "memories", user)
    addresses: asyncio.Queue[str] = asyncio.Queue()
    serving = serve_locally(lambda _stop: page_app(reader, concept), port=0, announce=addresses.put_nowait)
    server = asyncio.create_task(serving)
    async with AsyncExitStack() as ending:
        ending.push_async_callback(asyncio.wait, {server})
        ending.callback(server.cancel)
        browsers = ExitStack()
        ending.push_async_callback(asyncio.to_thread, browsers.close)
        driver = await asyncio.to_thread(browsers.enter_context, driven(size="1300,900"))
        address = await addresses.get()
        drawing = await asyncio.to_thread(Drawing, driver, address)
        await asyncio.to_thread(drawing.until_idle)
        yield drawing
        loaded = await asyncio.to_thread(drawing.loaded)
        assert {urlsplit(one).netloc for one in loaded} == {urlsplit(address).netloc}


async def test_a_click_on_a_concept_makes_it_the_middle_and_back_returns(bench: Workbench) -> None:
    """Around it are the memories that have it, with a line to each, and what they share outside."""
    await graph(bench)

    def look(found: Drawing) -> None:
        assert found.text("whose") == "Memories of ana"
        assert (found.middle, found.names("memory")) == ("marit", {"1", "2", "3"})
        assert {"nas-01", "b>rack</b"} <= found.names("concept")
        assert found.run("return document.querySelectorAll('svg path.spoke').length") == 3
        found.click("Concept nas-01")
        assert (found.middle, found.names("memory")) == ("nas-01", {"1", "2", "3", "4"})
        assert "marit" in found.names("concept")
        assert found.text("told").startswith("4 memories have nas-01;")
        found.driver.find_element(By.ID, "back").click()
        found.until_idle()
        assert found.middle == "marit"

    async with page(bench, "Marit's") as found:
        await asyncio.to_thread(look, found)


@pytest.mark.promise("page-loads-nothing")
async def test_hostile_text_is_shown_as_text(bench: Workbench) -> None:
    """In the picture, in its names for screen readers and beside it; nothing of it becomes an element or runs."""
    await graph(bench)

    def look(found: Drawing) -> None:
        found.click("Memory 3")
        assert found.text("title") == "Memory 3"
        assert found.run("return part('content').textContent") == HOSTILE
        assert found.node("Memory 3").text.startswith("Marit wrote <scri")
        found.click("Concept b>rack</b")
        assert found.middle == "b>rack</b"
        scripts = found.run("return Array.from(document.scripts, (one) => one.getAttribute('src'))")
        assert scripts == ["requests.js", "page.js"]
        assert found.run("return document.querySelectorAll('img, b').length") == 0
        assert found.driver.title == "Concept graph"

    async with page(bench, "marit") as found:
        await asyncio.to_thread(look, found)


async def test_the_keyboard_alone_reaches_and_names_everything(bench: Workbench) -> None:
    """Tab goes from the middle to memories and concepts, Enter chooses; every node has a role and a name."""
    await graph(bench)

    def look(found: Drawing) -> None:
        assert found.driver.switch_to.active_element.get_attribute("id") == "concept"
        found.search("zeppelin")
        found.send(Keys.TAB + "/marit" + Keys.ENTER)
        found.until_idle()
        assert found.driver.switch_to.active_element.accessible_name == "marit, in the middle"
        met: list[str] = []
        for _ in found.names("memory") | found.names("concept"):
            found.send(Keys.TAB)
            focused = found.driver.switch_to.active_element
            assert focused.aria_role == "button"
            met.append(focused.accessible_name)
        assert {one.split(":")[0] for one in met if one.startswith("Memory")} == {"Memory 1", "Memory 2", "Memory 3"}
        assert met[-1].startswith("Concept ")
        found.send(Keys.ENTER)
        found.until_idle()
        assert found.driver.switch_to.active_element.accessible_name == f"{found.middle}, in the middle"
        assert found.middle in met[-1]
        found.send(Keys.TAB + " ")
        found.wait("return !busy && chosen !== null")
        assert found.driver.switch_to.active_element.get_attribute("aria-pressed") == "true"
        assert found.text("content") in {row[0] for row in ROWS[:4]}

    async with page(bench, None) as found:
        await asyncio.to_thread(look, found)


@pytest.mark.promise("graph-page-without-sensitive-memory")
async def test_an_unknown_concept_is_said_with_a_remedy_and_leaves_the_picture(bench: Workbench) -> None:
    """Also one that only a sensitive, a deleted or another user's memory has; their texts are nowhere in the page."""
    await graph(bench)

    def look(found: Drawing) -> None:
        for name in ("zeppelin", *SECRETS):
            found.search(name)
            assert f'No memory of ana that may be shown has the concept "{name}".' in found.said()
            assert "memory graph status" in found.said()
            assert found.middle == "marit"
        found.search("nas-01")
        assert found.text("said") == ""
        assert not any(secret in found.source() for secret in SECRETS)

    async with page(bench, "marit") as found:
        await asyncio.to_thread(look, found)


async def test_everybodys_memories_are_shown_to_who_asked_for_them_without_the_private_ones(bench: Workbench) -> None:
    await graph(bench)

    def look(found: Drawing) -> None:
        assert found.text("whose") == "Everybody's memories"
        assert found.names("memory") == {"1", "2", "3", "7"}
        found.click("Memory 7")
        assert SECRETS[2] in found.text("content")
        assert not any(secret in found.source() for secret in SECRETS[:2])

    async with page(bench, "marit", None) as found:
        await asyncio.to_thread(look, found)


@pytest.mark.promise("graph-page-without-sensitive-memory")
@pytest.mark.parametrize(
    "change", ["is_sensitive = true", "deleted_at = now()", "user_id = 'tobin'"], ids=["sensitive", "deleted", "moved"]
)
async def test_a_memory_that_was_hidden_after_it_was_drawn_is_not_read_and_leaves_the_picture(
    change: str, bench: Workbench
) -> None:
    await graph(bench)

    def look(found: Drawing) -> None:
        found.click("Memory 3")
        found.wait("return !busy && part('said').textContent !== ''")
        assert found.text("said").startswith("Memory 3 is not shown")
        assert found.names("memory") == {"1", "2"}
        assert "wrote" not in found.source()

    async with page(bench, "marit") as found:
        await bench.execute(f"UPDATE memories SET {change} WHERE id = 3")
        await asyncio.to_thread(look, found)


def contrast(found: Drawing, selector: str, text: str, ground: str) -> float:
    """The contrast ratio of WCAG 2 between two colours of a node, each a CSS property of an element in it."""

    def brightness(part: str) -> float:
        script = """
            const [element, property] = arguments[1].split(" ");
            const found = document.querySelector(`${arguments[0]}${element}`);
            const parts = getComputedStyle(found)[property].match(/[0-9.]+/g).slice(0, 3).map((one) => one / 255);
            const [r, g, b] = parts.map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        """
        return float(found.run(script, selector, part))

    low, high = sorted((brightness(text), brightness(ground)))
    return (high + 0.05) / (low + 0.05)


async def test_the_picture_can_be_read_on_light_and_on_dark(bench: Workbench) -> None:
    """With the contrast of at least 4.5 that WCAG 2 asks for, and on grounds that differ."""
    await graph(bench)

    def look(found: Drawing) -> None:
        grounds = set()
        for scheme in ("light", "dark"):
            found.driver.execute_cdp_cmd(
                "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            )
            assert contrast(found, "svg .middle>", "text fill", "rect fill") >= 4.5
            assert contrast(found, "svg .memory>", "text fill", "rect fill") >= 4.5
            assert contrast(found, "", "aside color", "aside backgroundColor") >= 4.5
            assert contrast(found, "", "#told color", "body backgroundColor") >= 4.5
            grounds.add(found.run("return getComputedStyle(document.body).backgroundColor"))
        assert len(grounds) == 2

    async with page(bench, "marit") as found:
        await asyncio.to_thread(look, found)
