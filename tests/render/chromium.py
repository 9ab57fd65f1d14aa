"""A headless Chromium for tests of pages, and what they ask it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

CHROMIUM = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome")
DRIVER = ("/usr/bin/chromedriver", "chromedriver")


@dataclass
class Browser:
    """One browser for many pages; what it complains about or fetches can be asked for."""

    driver: Chrome
    folder: Path

    def open(self, page: str, *, width: int = 1300, height: int = 1000) -> None:
        """Shows `page` in a window of that size, as a file without a network."""
        path = self.folder / "page.html"
        path.write_text(page, encoding="utf-8")
        self.resize(width, height)
        self.drain()
        self.driver.get(path.as_uri())

    def resize(self, width: int, height: int) -> None:
        """Makes the window's inside so large, in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def drain(self) -> tuple[list[str], list[str]]:
        """What the console said, and what was asked of a network, since the last time."""
        console = [entry["message"] for entry in self.driver.get_log("browser")]  # pyright: ignore[reportUnknownMemberType]
        asked: list[str] = []
        for entry in self.driver.get_log("performance"):  # pyright: ignore[reportUnknownMemberType]
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                address = message["params"]["request"]["url"]
                asked += [address] if not address.startswith(("file:", "data:", "about:")) else []
        return console, asked

    def run(self, script: str, *values: Any) -> Any:
        """What a script returns in the page."""
        return self.driver.execute_script(script, *values)  # pyright: ignore[reportUnknownMemberType]

    def text(self, selector: str) -> str:
        """The text of the first element that fits, hidden or not."""
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements that fit."""
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
        )

    def values(self, selector: str, attribute: str) -> list[str]:
        """An attribute of all elements that fit."""
        return self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".map(e => e.getAttribute(arguments[1]))",
            selector,
            attribute,
        )

    def click(self, selector: str) -> None:
        """Clicks where the element is, as a user does."""
        self._element(selector).click()

    def hover(self, selector: str) -> None:
        """Moves the pointer onto the middle of an element."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).move_to_element(self._element(selector)).perform()

    def choose(self, selector: str, value: str) -> None:
        """Chooses an option of a list."""
        from selenium.webdriver.support.select import Select

        Select(self._element(selector)).select_by_value(value)

    def type(self, *keys: str) -> None:
        """Presses keys, wherever the focus is."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def _element(self, selector: str) -> Any:
        found = self.driver.find_element("css selector", selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", found)
        return found


def _missing(why: str) -> None:
    if os.environ.get("ROOFLINE_BROWSER") == "required":
        pytest.fail(f"ROOFLINE_BROWSER=required, but {why}")
    pytest.skip(f"{why}: pages are not tested in a browser")


def _first(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser whose pages are written to `folder`; skips the test where there is none."""
    try:
        from selenium.webdriver import Chrome, ChromeOptions
        from selenium.webdriver.chrome.service import Service
    except ModuleNotFoundError:
        _missing("selenium is not installed")
        raise
    binary, driver = _first(CHROMIUM), _first(DRIVER)
    if binary is None or driver is None:
        _missing("there is no chromium with its driver")
    options = ChromeOptions()
    options.binary_location = str(binary)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with Chrome(options=options, service=Service(str(driver))) as started:
        started.execute_cdp_cmd("Network.enable", {})
        nothing = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        started.execute_cdp_cmd("Network.emulateNetworkConditions", nothing)
        yield Browser(started, folder)
