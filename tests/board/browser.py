"""Chromium, where there is one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.patience import LIMIT_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def chromium() -> Iterator["Browser"]:
    """A browser, closed at the end."""
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """The browser of a file's tests; not of all tests, since it leaves its event loop running in this thread."""
    with chromium() as started:
        yield started


@contextmanager
def page_in(browser: "Browser", url: str, said: list[str], *, width: int = 1400) -> Iterator["Page"]:
    """A page without a past, closed at the end; `said` takes what its console says."""
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.set_default_timeout(1000 * LIMIT_S)
    playwright.expect.set_options(timeout=1000 * LIMIT_S)
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.goto(url)
    yield opened
    opened.close()
