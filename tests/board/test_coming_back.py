"""The page when its board goes away and comes back, in a real Chromium, which is skipped where there is none."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedlearn.board.app import Board
from fedlearn.board.serving import Reach
from fedlearn.config import RunConfig
from fedlearn.runs.run import Run
from tests.board.browser import CHROMIUM, browser, page_in, playwright
from tests.board.conftest import TOKEN
from tests.board.folders import show_status, write_steps
from tests.board.live import listening_board, serving
from tests.run_folders import created

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")

AWAY = re.compile(r"^The board is away since .+, and what is shown is from then; looking for it …$")


@contextmanager
def board_at(root: Path, port: int = 0) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", port)) as listening:
        found: int = listening.getsockname()[1]
        with serving(Board(root, token=TOKEN, names=Reach().names(found)).app(), listening):
            yield found


def test_what_is_old_is_not_shown_as_new(root: Path, run: Run, browser: "Browser") -> None:
    expect = playwright.expect
    write_steps(run.folder, range(100))
    show_status(run)
    with board_at(root) as port:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/")
        expect(page.locator("#state")).to_have_text("Running")
    expect(page.locator("#line")).to_have_text(AWAY)
    expect(page.locator("#state")).to_be_empty()
    write_steps(run.folder, range(100, 120))
    show_status(run)
    with board_at(root, port):
        expect(page.locator("#curve")).to_have_attribute("data-points", "120")
        expect(page.locator("#state")).to_have_text("Running")
        expect(page.locator("#line")).to_be_empty()
        page.close()


def test_a_stream_that_a_proxy_refuses_is_asked_for_again(root: Path, run: Run, browser: "Browser") -> None:
    show_status(run)
    with listening_board(root) as (_, port), page_in(browser, "about:blank", []) as page:
        page.route("**/api/events*", lambda route: route.fulfill(status=502, body="<html>"))
        page.goto(f"http://127.0.0.1:{port}/")
        playwright.expect(page.locator("#line")).to_have_text(AWAY)
        page.unroute("**/api/events*")
        playwright.expect(page.locator("#state")).to_have_text("Running")
        playwright.expect(page.locator("#line")).to_be_empty()


def test_a_list_that_could_not_be_had_is_asked_for_again(root: Path, browser: "Browser") -> None:
    with listening_board(root) as (_, port), page_in(browser, "about:blank", []) as page:
        page.route("**/api/runs", lambda route: route.fulfill(status=401, json={"error": "expected a token"}))
        page.goto(f"http://127.0.0.1:{port}/")
        playwright.expect(page.locator("#line")).to_have_text("expected a token")
        page.unroute("**/api/runs")
        playwright.expect(page).to_have_title("Run 1 · fedlearn")
        playwright.expect(page.locator("#line")).to_be_empty()


def test_a_link_within_the_page_is_followed(root: Path, config: RunConfig, browser: "Browser") -> None:
    created(config)
    said: list[str] = []
    with listening_board(root) as (_, port), page_in(browser, f"http://127.0.0.1:{port}/#2", said) as page:
        playwright.expect(page).to_have_title("Run 2 · fedlearn")
        page.goto(f"http://127.0.0.1:{port}/#1")
        playwright.expect(page).to_have_title("Run 1 · fedlearn")
        page.goto(f"http://127.0.0.1:{port}/#token={TOKEN.replace(' ', '+')}")
        playwright.expect(page.locator("#operator")).to_be_visible()
    assert said == []


def test_a_new_run_leaves_the_focus_where_it_is(root: Path, config: RunConfig, browser: "Browser") -> None:
    created(config)
    said: list[str] = []
    with listening_board(root) as (_, port), page_in(browser, f"http://127.0.0.1:{port}/#2", said) as page:
        playwright.expect(page.locator("#settings dd")).not_to_have_count(0)
        page.focus("#overlay input[value='1']")
        page.locator("footer").scroll_into_view_if_needed()
        playwright.expect(page.locator("#overlay")).not_to_be_in_viewport()
        created(config)
        playwright.expect(page.locator("#overlay input")).to_have_count(2)
        playwright.expect(page.locator("#overlay input[value='1']")).to_be_focused()
        playwright.expect(page.locator("#overlay")).not_to_be_in_viewport()
    assert said == []
