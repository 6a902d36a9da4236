"""The page of jobs in a real Chromium, which is skipped where there is none."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from fedlearn.board.serving import Reach
from fedlearn.hub.app import Hub
from fedlearn.hub.bodies import MAX_EPOCHS
from fedlearn.hub.settings import HubSettings
from tests.acceptance.hubs import devices_of, hub_in
from tests.board.browser import CHROMIUM, chromium, playwright
from tests.board.folders import show_status, volunteer
from tests.board.live import serving
from tests.hub.conftest import TEXT, Scripted, ended
from tests.patience import LIMIT_S

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")

WIDTHS = (390, 800, 1400)
REFUSED = re.compile("status of 40[01]|net::ERR_FAILED")
"""Chromium's own lines about requests that the page shows as refused, or as lost."""

HOSTILE = '<img src="x" onerror="document.title=1">'


@contextmanager
def page_at(url: str, scheme: Any = "light") -> Iterator["Page"]:  # noqa: ANN401
    """The page, whose errors fail the test."""
    said: list[str] = []
    with chromium() as browser:
        opened = browser.new_page(viewport={"width": WIDTHS[-1], "height": 900}, color_scheme=scheme)
        opened.set_default_timeout(1000 * LIMIT_S)
        playwright.expect.set_options(timeout=1000 * LIMIT_S)
        opened.on("console", lambda message: said.append(message.text) if not REFUSED.search(message.text) else None)
        opened.on("pageerror", lambda error: said.append(str(error)))
        opened.on("dialog", lambda dialog: dialog.accept())
        opened.goto(url)
        yield opened
    assert said == []


def assert_fits(page: "Page") -> None:
    """At no width does the page or a table have to be pushed sideways."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        assert page.locator(".scroll").evaluate_all("all => all.every((one) => one.scrollWidth <= one.clientWidth)")


def draw_one(page: "Page") -> None:
    """Draws a digit with the mouse."""
    canvas = page.locator("#canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 140, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 140, box["y"] + 240, steps=8)
    page.mouse.up()


class Listening(NamedTuple):
    """A hub whose jobs' servers are scripted."""

    hub: Hub
    url: str


@pytest.fixture
def live(settings: HubSettings) -> Iterator[Listening]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        hub = Hub(settings, Reach().names(port))
        with serving(hub.app(), listening):
            yield Listening(hub, f"http://127.0.0.1:{port}/jobs")


def test_a_job_is_made_by_the_form_trained_followed_and_deleted(live: Listening, settings: HubSettings) -> None:
    with page_at(live.url) as page:
        expect, row = playwright.expect, page.locator("#jobs tbody tr").first
        page.locator("#what").select_option("text")
        page.locator("#source").select_option("text.txt")
        page.get_by_role("button", name="Create").click()
        expect(row).to_contain_text("1 · transformer")
        page.locator("#epochs").fill("3")
        row.get_by_role("button", name="Train").click()
        expect(row).to_contain_text("training")
        training = live.hub.jobs.get(1).training
        assert training is not None
        assert training.epochs == 3
        run = Scripted.started[-1].begin(settings)
        show_status(run, step=7, steps=20, loss=2.5, validation={"loss": 2.25}, volunteers=(volunteer(HOSTILE),))
        expect(row).to_contain_text("7 of 20")
        expect(row).to_contain_text("2.25")
        expect(page.locator("#log")).to_contain_text("created")
        with open(live.hub.jobs.folder(live.hub.jobs.get(1)).log, "a") as log:
            log.write("a line\n" * 200 + f"{HOSTILE} joined\n")
        expect(page.locator("#log")).to_contain_text(f"{HOSTILE} joined")
        assert page.evaluate("() => document.getElementById('log').scrollTop") > 1000, "the end is shown"
        assert_fits(page)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            expect(row.get_by_role("button", name="Stop")).to_be_in_viewport(ratio=1)
        row.get_by_role("button", name="Stop").click()
        expect(row).to_contain_text("stopped")
        row.get_by_role("button", name="Delete").click()
        expect(page.locator("#jobs tbody tr")).to_have_count(0)
        expect(page.locator("#note")).to_contain_text("its run 1 stays")


def test_long_names_push_nothing_out_of_the_page(live: Listening) -> None:
    with page_at(live.url) as page:
        playwright.expect(page.locator("#no-jobs")).to_be_visible()
        playwright.expect(page.locator("#no-devices")).to_be_visible()
        body = {"port": 5001, "name": "x" * 64, "verbs": ["restart", "free-space"]}
        assert page.request.post(live.url.replace("jobs", "api/devices/register"), data=body).ok
        page.locator("#layers").fill(f"784, {'256, ' * 10}10")
        page.get_by_role("button", name="Create").click()
        playwright.expect(page.locator("#devices tbody tr")).to_have_count(1)
        playwright.expect(page.locator("#jobs tbody tr")).to_have_count(1)
        playwright.expect(page.locator("#no-jobs")).to_be_hidden()
        playwright.expect(page.locator("#no-devices")).to_be_hidden()
        assert_fits(page)


def test_a_hub_that_is_away_is_waited_for(live: Listening) -> None:
    with page_at(live.url) as page:
        expect, line, box = playwright.expect, page.locator("#line"), page.get_by_label("Take device 5001")
        assert page.request.post(live.url.replace("jobs", "api/devices/register"), data={"port": 5001}).ok
        page.locator("#what").select_option("text")
        page.get_by_role("button", name="Create").click()
        box.check()
        page.locator("#jobs").get_by_role("button", name="Log").click()
        expect(page.locator("#log")).to_be_in_viewport(ratio=0.9)
        expect(page.locator("#log-title")).to_have_text("Log of job 1")
        expect(page.locator("#log")).to_contain_text("created")
        page.route("**/api/**", lambda route: route.abort())
        expect(line).to_have_text(
            re.compile("^The hub is away since .+, and what is shown is from then; looking for it …$")
        )
        page.locator("#jobs").get_by_role("button", name="Initialize").click()
        expect(page.locator("#note")).to_contain_text("The hub is away")
        expect(box).to_be_checked()
        with page.expect_request("**/api/jobs/1/log?follow=1"):
            page.unroute("**/api/**")
        expect(line).to_be_empty()
        expect(page.locator("#note")).to_be_empty()
        expect(page.locator("#log")).to_contain_text("created")
        expect(box).to_be_checked()


def test_a_table_that_changes_leaves_focus_and_place_alone(live: Listening) -> None:
    with page_at(live.url) as page:
        page.set_viewport_size({"width": 390, "height": 500})
        assert page.request.post(live.url.replace("jobs", "api/jobs"), data=TEXT).ok
        page.get_by_role("button", name="Delete").focus()
        page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
        assert page.request.post(live.url.replace("jobs", "api/jobs"), data=TEXT).ok
        playwright.expect(page.locator("#jobs tbody tr")).to_have_count(2)
        playwright.expect(page.get_by_role("button", name="Delete").last).to_be_focused()
        playwright.expect(page.locator("#log")).to_be_in_viewport(ratio=0.5)


def test_a_wrong_token_is_forgotten_and_the_right_one_taken_in_the_same_tab(live: Listening) -> None:
    with page_at("about:blank") as page:
        page.set_extra_http_headers({"X-Forwarded-For": "192.0.2.1"})  # else nobody needs one
        page.goto(f"{live.url}#token=wrong")
        playwright.expect(page.locator("#line")).to_contain_text("the address that the hub printed")
        assert page.evaluate("() => sessionStorage.length") == 0
        token = live.hub._settings.operator_token
        page.goto(f"{live.url}#token={token}")
        playwright.expect(page.locator("#no-jobs")).to_be_visible()
        assert token not in page.url


def test_a_job_has_its_own_epochs_and_more_of_them_once_it_is_completed(live: Listening, settings: HubSettings) -> None:
    with page_at(live.url) as page:
        expect, row = playwright.expect, page.locator("#jobs tbody tr").first
        page.locator("#what").select_option("text")
        page.get_by_role("button", name="Create").click()
        row.get_by_role("button", name="Train").click()
        expect(row).to_contain_text("training")
        server = Scripted.started[-1]
        ended(server.begin(settings), step=30, steps=30)
        server.code = 0
        expect(row).to_contain_text("completed")
        row.get_by_role("button", name="Train").click()
        expect(row).to_contain_text("training")
    record = live.hub.jobs.get(1)
    assert (record.epochs, record.steps) == (6, 60)


def test_a_job_is_reviewed_and_started_on_the_devices_that_are_marked(live: Listening) -> None:
    with page_at(live.url) as page:
        expect, devices = playwright.expect, page.locator("#devices tbody tr")
        for number, name in ((5001, "ada"), (5002, HOSTILE), (5003, "cleo")):
            body = {"ip": "10.0.0.7", "port": number, "name": name, "verbs": ["restart"]}
            assert page.request.post(live.url.replace("jobs", "api/devices/register"), data=body).ok
        expect(devices).to_have_count(3)
        expect(devices.nth(1)).to_contain_text(HOSTILE)
        expect(devices.first).to_contain_text("10.0.0.7:5001")
        expect(devices.first).to_contain_text("restart")
        log = live.url.replace("jobs", "api/devices/5002/log")
        assert page.request.post(log, data={"lines": [f"{HOSTILE} is said"]}).ok
        devices.nth(1).get_by_role("button", name="Log").click()
        expect(page.locator("#log")).to_contain_text(f"{HOSTILE} is said")
        page.get_by_label("Take device 5001").check()
        page.get_by_label("Take device 5003").check()
        page.locator("#layers").fill("784, 16, 10")
        page.locator("#batch").fill("128")
        page.locator("#epochs").fill("4")
        page.locator("#rate").fill("0.5")
        page.locator("#parallelism").select_option("split")
        page.get_by_role("button", name="Review").click()
        plan = page.locator("#plan")
        for said in (
            "784-16-10",
            "MNIST",
            "128",
            "5001 · ada, 5003 · cleo",
            "devices hold one model between them",
            "0.5",
        ):
            expect(plan).to_contain_text(said)
        assert_fits(page)
        page.locator("#epochs").fill("3")
        playwright.expect(plan).to_be_hidden()
        page.get_by_role("button", name="Review").click()
        page.get_by_role("button", name="Start").click()
        expect(page.locator("#note")).to_contain_text("2 devices hold the model between them")
        expect(page.locator("#note")).to_contain_text("Training started")
        expect(page.locator("#note")).to_contain_text("scikit-learn's digits of 64 pixels")
        expect(page.locator("#jobs tbody tr").first).to_contain_text("training")
        expect(page.locator("#log")).to_contain_text("initialized with 2 devices")
        expect(page.get_by_label("Take device 5001")).to_be_disabled()
        assert_fits(page)
    record = live.hub.jobs.get(1)
    assert (record.seats, record.is_chosen, record.asked["dataset_config"]["batch_size"]) == (2, True, 128)
    assert record.training is not None
    assert (record.training.epochs, record.training.learning_rate) == (3, 0.5)


def test_a_button_that_is_pressed_stays_whatever_is_shown_meanwhile(live: Listening) -> None:
    with page_at(live.url) as page:
        expect, rows, create = playwright.expect, page.locator("#jobs tbody tr"), page.locator("#new")
        page.locator("#layers").fill("784, 16, 10")
        create.evaluate("form => form.requestSubmit()")
        expect(rows).to_have_count(1)
        rows.get_by_role("button", name="Delete").hover()
        page.mouse.down()
        create.evaluate("form => form.requestSubmit()")
        expect(page.locator("#note")).to_contain_text("Job created")
        page.wait_for_timeout(500)
        page.mouse.up()
        expect(page.locator("#note")).to_contain_text("Job deleted")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("2 · ")


def test_a_refusal_is_shown_and_the_form_stays(live: Listening) -> None:
    with page_at(live.url) as page:
        page.locator("#layers").fill("784, 64, 9")
        page.get_by_role("button", name="Create").click()
        playwright.expect(page.locator("#note")).to_contain_text("expected at least 10 last")
        assert page.locator("#layers").input_value() == "784, 64, 9"


@pytest.mark.long
def test_two_real_devices_train_what_the_form_made(tmp_path: Path) -> None:
    with hub_in(tmp_path) as place, page_at(f"{place.url}/jobs", "dark") as page:
        expect, row = playwright.expect, page.locator("#jobs tbody tr").first
        page.locator("#layers").fill("784, 32, 10")
        page.get_by_role("button", name="Create").click()
        expect(row).to_contain_text("created")
        with devices_of(place, "ada", "bob", job=1):
            row.get_by_role("button", name="Initialize").click()
            expect(row).to_contain_text("initialized")
            page.locator("#epochs").fill(str(MAX_EPOCHS))
            row.get_by_role("button", name="Train").click()
            expect(row.locator("td[title*='ada: '][title*='bob: ']")).to_have_count(1)
            assert_fits(page)
            row.get_by_role("button", name="Stop").click()
            expect(row).to_contain_text("stopped")
        draw_one(page)
        expect(page.locator("#classes li")).to_have_count(10)
        expect(page.locator("#classes .best")).to_have_count(1)
        assert_fits(page)
        expect(page.locator("#log")).to_contain_text("hub: stopped")
        with page.expect_download() as download:
            row.get_by_role("link", name="Model").click()
        content = Path(download.value.path()).read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        assert {"0.weight", "2.bias"} <= set(header)
