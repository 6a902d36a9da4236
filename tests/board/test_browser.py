"""The page in a real Chromium, which is skipped where there is none."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedlearn.runs.run import Run
from tests.board.browser import CHROMIUM, browser, page_in, playwright
from tests.board.conftest import TOKEN
from tests.board.folders import append, metrics_of, show_status, volunteer, write_sample, write_steps
from tests.board.live import listening_board

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")

HOSTILE = '<img src="x" onerror="document.title=1">'
WIDTHS = (400, 900, 1500)


@pytest.fixture
def address(root: Path, run: Run) -> Iterator[str]:
    """Of a board over one run with a past."""
    write_steps(run.folder, range(3000))
    write_sample(run.folder, 100, HOSTILE)
    show_status(run, volunteers=(volunteer(HOSTILE),), step=3000)
    with listening_board(root) as (_, port):
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture
def page(address: str, browser: "Browser") -> Iterator["Page"]:
    """The page, whose errors fail the test."""
    said: list[str] = []
    with page_in(browser, address, said, width=WIDTHS[-1]) as opened:
        yield opened
    assert said == []


def test_curves_are_drawn_and_what_happens_is_seen(page: "Page", run: Run) -> None:
    expect = playwright.expect
    expect(page.locator("#state")).to_have_text("Running")
    expect(page.locator("#curve")).to_have_attribute("data-points", "1500")
    expect(page.locator("#chart-volunteers")).to_have_attribute("data-points", "1500")
    expect(page.locator("#figures")).to_contain_text("3,000")
    drawn = page.evaluate(
        "() => new Set(document.getElementById('curve').getContext('2d').getImageData(0, 0, 800, 400).data).size"
    )
    assert drawn > 20, "a chart has more than one colour"
    write_steps(run.folder, range(3000, 3010))
    write_sample(run.folder, 3010, "the newest text")
    show_status(run, step=3010, volunteers=(volunteer(HOSTILE), volunteer("grace", identity="f" * 16)))
    expect(page.locator("#curve")).to_have_attribute("data-points", "1505")
    expect(page.locator("#figures")).to_contain_text("3,010")
    expect(page.locator("#samples li").first).to_contain_text("the newest text")
    expect(page.locator("#samples time").first).to_have_text(re.compile(r"Nov 1[45], 2023, "))
    expect(page.locator("#arrivals")).to_contain_text("grace joined")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_variance_left_is_a_curve_where_it_is_known(page: "Page", run: Run) -> None:
    expect = playwright.expect
    expect(page.locator("#figures")).to_contain_text("3,000")
    expect(page.locator("#figure option")).to_have_text(["bits per character", "loss"])
    append(run.folder.metrics, [metrics_of(step, variance_left=0.125) for step in range(3000, 3010)])
    expect(page.locator("#figure option")).to_have_text(["bits per character", "loss", "variance left"])
    page.locator("#figure").select_option("variance_left")
    expect(page.locator("#curve")).to_have_attribute("aria-label", re.compile(r"variance left .*0\.125"))


def test_a_return_has_its_spread_with_it(page: "Page", run: Run) -> None:
    figures = page.locator("#figures")
    playwright.expect(figures).to_contain_text("3,000")
    playwright.expect(figures).not_to_contain_text("±")
    show_status(run, step=3000, loss=-212.0, shown={"return": 212.0}, figures={"loss_spread": 35.25})
    playwright.expect(figures).to_contain_text(re.compile(r"return\s*212\.0\s*± 35\.25"))


def test_figures_have_digits_where_they_are_small_and_are_the_newest(page: "Page", run: Run) -> None:
    append(run.folder.metrics, [metrics_of(3000, validation={"error": 0.5})])
    show_status(run, step=3001, shown={"error": 2.216e-5}, validation={"error": 0.0004, "accuracy": 0.9875})
    playwright.expect(page.locator("#figures")).to_contain_text(
        re.compile(r"error\s*2\.216e-5\s*on held-out data\s*4\.000e-4\s*accuracy, held out\s*0\.9875")
    )


def test_volunteers_keep_their_rows_and_have_their_whole_names(page: "Page", run: Run) -> None:
    names = page.locator("#volunteers bdi")
    playwright.expect(names).to_have_text([HOSTILE])
    for shares in ((0.1, 0.9), (0.9, 0.1)):
        crowd = tuple(volunteer(name, share=share) for name, share in zip(("ada", "x" * 64), shares, strict=True))
        show_status(run, volunteers=crowd)
        playwright.expect(page.locator("#volunteers tbody tr").first).to_contain_text(f"{100 * shares[0]:.0f} %")
        playwright.expect(names).to_have_text(["ada", "x" * 64])
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.locator("td.name").last.evaluate("cell => cell.scrollWidth <= cell.clientWidth")


def test_prompt_is_answered_as_text_and_nothing_else_is_obeyed(page: "Page") -> None:
    expect = playwright.expect
    expect(page.locator("#send")).to_be_visible()
    page.fill("#prompt", HOSTILE)
    page.fill("#length", "40")
    page.press("#prompt", "Control+Enter")
    expect(page.locator("#given")).to_have_text(HOSTILE)
    expect(page.locator("#write-note")).to_contain_text("Weights of step 0")
    expect(page.locator("#written")).to_have_attribute("aria-busy", "false")
    assert len(page.locator("#answer").text_content() or "") > 10
    expect(page.locator("#volunteers")).to_contain_text(HOSTILE)
    expect(page.locator("#samples")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0
    assert page.title() == "Run 1 · fedlearn"


def test_what_a_run_that_writes_nothing_measured_has_the_whole_width(page: "Page", address: str) -> None:
    page.route("**/abilities", lambda route: route.fulfill(json=None))
    page.goto(f"{address}?again")
    playwright.expect(page.locator("#write")).to_be_hidden()
    box = page.locator("section:has(> #samples)").bounding_box()
    assert box is not None
    assert box["width"] > 0.8 * WIDTHS[-1]
    assert box["height"] < 200, "no room is kept for texts"


def test_page_is_used_by_keyboard_and_operators_have_buttons(page: "Page", address: str) -> None:
    expect = playwright.expect
    expect(page.locator("#curve")).to_have_attribute("data-points", "1500")
    expect(page.locator("#operator")).to_be_hidden()
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.id || document.activeElement.value"))
    assert reached[1:] == ["run", "figure", "step", "smooth", "log", "curve", "samples", "prompt"]
    page.focus("#curve")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#readout")).to_contain_text("at step")
    page.check("input[value=seconds]", force=True)
    expect(page.locator("#curve")).to_have_attribute(
        "aria-label", "bits per character over seconds, now 2.002; arrow keys read it"
    )
    page.goto(f"{address}?#token={TOKEN.replace(' ', '+')}")
    expect(page.locator("#operator")).to_be_visible()
    assert TOKEN.split()[1] not in page.url
