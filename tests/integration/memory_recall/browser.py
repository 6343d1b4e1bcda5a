"""Debian's chromium, without a window, driven by Debian's chromedriver."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from tests.support.waiting import eventually

_IDLE = "document.querySelector('[aria-busy]') === null"
_SECONDS = 60.0  # a machine on which others work starts a browser slowly


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed: `make host` installs it or names its package"
    return found


class Browser:
    """A browser that shows a page, which says by `aria-busy` whether it waits for the server."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver = driver
        driver.get(address)

    def send(self, keys: str) -> None:
        """Send keys to whatever has the focus."""
        ActionChains(self.driver).send_keys(keys).perform()

    def text(self, part: str) -> str:
        return self.driver.find_element(By.ID, part).text

    def said(self) -> str:
        """What the page says, once it says something."""
        return str(self.answered("document.getElementById('said').textContent"))

    def answered(self, expression: str, *arguments: object) -> Any:
        """What an expression of the page yields, once that is true and the page waits for no answer."""
        return self.wait(f"return {_IDLE} && {expression}", *arguments)

    def loaded(self) -> list[str]:
        """The addresses of all that the page has loaded."""
        found = self.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        return [str(one) for one in found]

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, *arguments: object) -> Any:
        """What the script returns, once that is true."""
        return eventually(lambda: self.run(script, *arguments), bool, what=script, seconds=_SECONDS, poll=0.02)


@contextmanager
def driven(*, size: str = "900,720") -> Iterator[webdriver.Chrome]:
    """Start a browser, and end it when the block ends."""
    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium")
    options.add_argument("--headless=new")
    options.add_argument("--disable-dev-shm-usage")
    options.add_argument(f"--window-size={size}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # chromium refuses to run as root within its sandbox
    driver = webdriver.Chrome(options=options, service=Service(_program("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
