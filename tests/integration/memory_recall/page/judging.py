"""The view of judgements in a browser, of which only the keyboard is used."""

from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver

from tests.integration.memory_recall.browser import Browser, driven

_TASK = "document.getElementById('judge').dataset.task"
# The id of the task, which is empty if everything is done, and the text of the memory, once a task has been shown.
_SHOWN = f"{_TASK} !== undefined && [{_TASK}, document.getElementById('content').textContent]"


class Judging(Browser):
    """A browser that shows the view, and the task that it shows."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        super().__init__(driver, address)
        self.task, self.content = self.answered(_SHOWN)

    def press(self, keys: str) -> None:
        """Send keys to whatever has the focus, and wait until another task is shown."""
        self.send(keys)
        self.task, self.content = self.answered(f"{_TASK} !== arguments[0] && {_SHOWN}", self.task)


@contextmanager
def judging(address: str) -> Iterator[Judging]:
    """Show the page at this address until the block ends."""
    with driven() as driver:
        yield Judging(driver, address)
