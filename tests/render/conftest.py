"""What tests of pages share: one browser, for starting it takes longer than a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.render.chromium import Browser, chromium


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium; skipped where there is none, unless ROOFLINE_BROWSER=required."""
    with chromium(tmp_path_factory.mktemp("pages")) as started:
        yield started


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    """The browser; a page that complains on the console or asks for a network fails its test."""
    one_browser.drain()
    yield one_browser
    assert one_browser.drain() == ([], [])
