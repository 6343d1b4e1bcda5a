"""The page of judgements in a browser, of which only the keyboard is used."""

from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver

from tests.integration.memory_recall.browser import Browser, driven

# The id of the task and the text of the memory, once the server has answered; neither if everything is done.
_SHOWN = "current !== null && !busy && [current.task?.id ?? null, document.getElementById('content').textContent]"


class Judging(Browser):
    """A browser that shows the page, and the task that it shows."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        super().__init__(driver, address)
        self.task, self.content = self.wait(f"return {_SHOWN}")

    def press(self, keys: str) -> None:
        """Send keys to whatever has the focus, and wait until another task is shown."""
        self.send(keys)
        self.task, self.content = self.wait(f"return current.task?.id !== arguments[0] && {_SHOWN}", self.task)


@contextmanager
def judging(address: str) -> Iterator[Judging]:
    """Show the page at this address until the block ends."""
    with driven() as driver:
        yield Judging(driver, address)
