"""The learning curve on the page, in a real Chromium, which is skipped where there is none."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedlearn.config import RunConfig
from fedlearn.runs.run import Run
from tests.board.browser import CHROMIUM, browser, page_in, playwright
from tests.board.folders import write_steps
from tests.board.live import listening_board
from tests.run_folders import created

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")

NARROW = 390


@pytest.fixture
def page(root: Path, run: Run, config: RunConfig, browser: "Browser") -> Iterator["Page"]:
    """The page of run 1; run 2 has other units, and run 3 measures something else."""
    write_steps(run.folder, range(1000))
    write_steps(created(config.replace({"hidden_size": 12})).folder, range(500))
    write_steps(created(config).folder, range(500), shown={"error": 0.5})
    said: list[str] = []
    with (
        listening_board(root) as (_, port),
        page_in(browser, f"http://127.0.0.1:{port}/#1", said, width=1280) as opened,
    ):
        playwright.expect(opened.locator("#curve")).to_have_attribute("data-points", "1000")
        yield opened
    assert said == []


def drag(page: "Page", first: int, last: int) -> None:
    place = page.locator("#curve").bounding_box()
    assert place is not None
    page.mouse.move(place["x"] + first, place["y"] + 100)
    page.mouse.down()
    page.mouse.move(place["x"] + last, place["y"] + 100)
    page.mouse.up()


def read_at_the_right(page: "Page") -> int:
    """The step at the right end of what is shown."""
    page.focus("#curve")
    page.keyboard.press("ArrowRight")
    for _ in range(20):
        page.keyboard.press("PageUp")
    playwright.expect(page.locator("#readout")).to_contain_text("at step")
    found = re.search(r"at step ([0-9,]+)", page.locator("#readout").inner_text())
    assert found is not None
    return int(found[1].replace(",", ""))


def test_runs_are_named_by_what_differs(page: "Page") -> None:
    expect = playwright.expect
    expect(page.locator("#overlay label")).to_have_count(2)
    expect(page.locator("#overlay")).to_contain_text("2 rnn, hidden size 12")
    expect(page.locator("#run option:checked")).to_have_text(re.compile(r"^1 · rnn, hidden size (?!12)[0-9]+$"))


def test_legend_has_the_colours_of_the_curves(page: "Page") -> None:
    page.check("#overlay input[value='2']")
    legend = page.locator("#readout > span")
    playwright.expect(legend).to_have_count(2)
    playwright.expect(legend).to_have_text([re.compile("^run 1 "), re.compile("^run 2 ")])
    tints = page.evaluate(
        "() => [...document.querySelectorAll('#readout .swatch')].map((each) => getComputedStyle(each).backgroundColor)"
    )
    assert len(set(tints)) == 2


def test_run_that_measures_something_else_is_told_of(page: "Page") -> None:
    expect = playwright.expect
    page.check("#overlay input[value='3']")
    expect(page.locator("#missing")).to_have_text(
        "Run 3 is not drawn: it measures error, no bits per character; the figure “loss” is common to all."
    )
    page.locator("#figure").select_option("loss")
    expect(page.locator("#missing")).to_be_empty()
    expect(page.locator("#curve")).to_have_attribute("data-points", "1500")


def test_losses_that_fall_to_a_thirtieth_are_drawn_by_powers_of_ten(
    root: Path, config: RunConfig, browser: "Browser"
) -> None:
    expect, falling = playwright.expect, created(config).folder
    for step in range(200):
        write_steps(falling, [step], loss=1.0, shown={"error": 10.0 ** (4 - step / 20)})
    said: list[str] = []
    name = falling.path.name
    with listening_board(root) as (_, port), page_in(browser, f"http://127.0.0.1:{port}/#{name}", said) as page:
        curve = page.locator("#curve")
        expect(curve).to_have_attribute("data-points", "200")
        expect(curve).to_have_attribute("data-powers", "true")
        page.focus("#curve")
        page.keyboard.press("ArrowRight")
        # A line through values rather than their logarithms would be far from this one.
        expect(page.locator("#readout")).to_contain_text("1.122e-6 at step 199")
        page.keyboard.press("+")
        expect(page.locator("#whole")).to_be_visible()
        page.locator("#figure").select_option("loss")
        expect(curve).to_have_attribute("data-powers", "false")
    assert said == []


def test_part_of_the_curve_is_chosen_by_dragging_and_left_again(page: "Page") -> None:
    whole = page.locator("#whole")
    playwright.expect(whole).to_be_hidden()
    assert read_at_the_right(page) == 999
    drag(page, 300, 600)
    playwright.expect(whole).to_be_visible()
    assert 400 < read_at_the_right(page) < 600
    page.locator("#curve").dblclick()
    playwright.expect(whole).to_be_hidden()
    assert read_at_the_right(page) == 999
    drag(page, 600, 300)
    whole.click()
    playwright.expect(whole).to_be_hidden()
    drag(page, 300, 600)
    page.check("input[value=seconds]", force=True)
    playwright.expect(whole).to_be_hidden()
    drag(page, 300, 304)
    playwright.expect(whole).to_be_hidden()


def test_part_of_the_curve_is_chosen_by_keyboard(page: "Page") -> None:
    whole = page.locator("#whole")
    page.focus("#curve")
    for _ in range(12):
        page.keyboard.press("PageDown")
    page.keyboard.press("+")
    playwright.expect(whole).to_be_visible()
    assert 400 < read_at_the_right(page) < 600
    page.keyboard.press("-")
    playwright.expect(whole).to_be_visible()
    page.keyboard.press("-")
    playwright.expect(whole).to_be_hidden()
    page.keyboard.press("+")
    page.keyboard.press("Escape")
    playwright.expect(whole).to_be_hidden()
    assert read_at_the_right(page) == 999


def test_narrow_page_has_ticks_and_does_not_scroll_sideways(page: "Page") -> None:
    page.set_viewport_size({"width": NARROW, "height": 900})
    for chart in ("curve", "chart-volunteers", "chart-work", "chart-bytes"):
        playwright.expect(page.locator(f"#{chart}")).to_have_attribute("data-ticks", re.compile("[3-9]"))
    assert page.evaluate("() => document.documentElement.scrollWidth") <= NARROW
    page.check("#log")
    playwright.expect(page.locator("#curve")).to_have_attribute("data-ticks", re.compile("[3-9]"))
