"""Debian's chromium, without a window, driven by Debian's chromedriver."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

# The id of the task and the text of the memory, once the server has answered; neither if everything is done.
_SHOWN = "current !== null && !busy && [current.task?.id ?? null, document.getElementById('content').textContent]"
_SECONDS = 60.0  # a machine on which others work starts a browser slowly


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed: `make host` installs it or names its package"
    return found


class Browser:
    """A browser that shows the page. Only its keyboard is used."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver = driver
        driver.get(address)
        self.task, self.content = self._wait(f"return {_SHOWN}")

    def press(self, keys: str) -> None:
        """Send keys to whatever has the focus, and wait until another task is shown."""
        self.send(keys)
        self.task, self.content = self._wait(f"return current.task?.id !== arguments[0] && {_SHOWN}", self.task)

    def send(self, keys: str) -> None:
        ActionChains(self.driver).send_keys(keys).perform()

    def text(self, part: str) -> str:
        return self.driver.find_element(By.ID, part).text

    def said(self) -> str:
        """What the page says, once it says something."""
        return str(self._wait("return !busy && document.getElementById('said').textContent"))

    def loaded(self) -> list[str]:
        """The addresses of all that the page has loaded."""
        found = self.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        return [str(one) for one in found]

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def _wait(self, script: str, *arguments: object) -> Any:
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            found = self.run(script, *arguments)
            if found:
                return found
            time.sleep(0.02)
        raise TimeoutError(script)


@contextmanager
def browser(address: str, *, size: str = "900,720") -> Iterator[Browser]:
    """Start a browser that shows this page, and end it when the block ends."""
    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium")
    options.add_argument("--headless=new")
    options.add_argument("--disable-dev-shm-usage")
    options.add_argument(f"--window-size={size}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # chromium refuses to run as root within its sandbox
    driver = webdriver.Chrome(options=options, service=Service(_program("chromedriver")))
    try:
        yield Browser(driver, address)
    finally:
        driver.quit()
