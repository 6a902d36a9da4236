"""What the page promises whoever shows it to everybody, in a real Chromium, which is skipped where there is none."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from fedlearn.runs.run import Run
from fedlearn.storage.logs.changes import Change
from fedlearn.tasks.reason import Reason
from tests.board.browser import CHROMIUM, browser, page_in, playwright
from tests.board.conftest import TOKEN
from tests.board.folders import answered, append, show_status, volunteer, write_sample, write_steps
from tests.board.live import listening_board

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page, Route

__all__ = ["browser"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")

HOSTILE = '</style></script><script>document.title="obeyed"</script><img src=x onerror="document.title=\'obeyed\'">'
ORDERS = ["pause", "go-on", "checkpoint", "finish"]


@pytest.fixture
def address(root: Path, run: Run) -> Iterator[str]:
    """Of a board over a run in which everything that a stranger may write is hostile."""
    write_steps(run.folder, range(40), shown={HOSTILE: 3.0}, validation={HOSTILE: 2.0})
    write_sample(run.folder, 5, HOSTILE)
    run.folder.reasons.write_bytes(msgspec.json.encode([Reason(HOSTILE), Reason(HOSTILE, "sigma", "0.02")]))
    append(run.folder.changes, [Change(step=3, time=1.0, key="learning_rate", value=0.02, before=HOSTILE)])
    text = run.folder.config.read_text()
    run.folder.config.write_text(text.replace('"task": "rnn"', f'"task": {msgspec.json.encode(HOSTILE).decode()}'))
    show_status(
        run, volunteers=(volunteer(HOSTILE),), reason=HOSTILE, state="paused", shown={HOSTILE: 3.0}, unit=HOSTILE
    )
    with listening_board(root) as (_, port):
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def page(address: str, said: list[str], browser: "Browser") -> Iterator["Page"]:
    with page_in(browser, address, said) as opened:
        yield opened


def test_whatever_strangers_write_is_shown_as_text(page: "Page", said: list[str]) -> None:
    expect = playwright.expect
    for place in ("#volunteers", "#samples", "#notes", "#settings", "#figures", "#figure"):
        expect(page.locator(place)).to_contain_text("</script>")
    expect(page.locator("#run")).to_contain_text("onerror=")
    assert page.locator("img, main script, main style").count() == 0
    assert page.title() == "Run 1 · fedlearn"
    assert said == []


def test_page_keeps_to_a_policy_that_runs_no_script_but_its_own(page: "Page", address: str, said: list[str]) -> None:
    answer = page.goto(address)
    assert answer is not None
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
    assert (policy["base-uri"], policy["form-action"], policy["frame-ancestors"]) == ("'none'", "'none'", "'none'")
    assert page.locator("script:not([src]), style, [style], [onclick], [onload]").count() == 0
    assert said == []  # it does without what the policy forbids
    page.evaluate(
        """() => {
          const script = document.createElement('script');
          script.textContent = 'document.title = "obeyed"';
          document.body.append(script);
          const image = document.createElement('img');
          image.src = 'https://elsewhere.invalid/x.png';
          document.body.append(image);
        }"""
    )
    playwright.expect(page).to_have_title("Run 1 · fedlearn")
    assert len([text for text in said if "Content Security Policy" in text]) == 2


def test_nobody_gives_orders_without_the_token(page: "Page", address: str, run: Run) -> None:
    playwright.expect(page.locator("#state")).to_contain_text("Paused")
    assert page.locator("#operator").is_hidden()
    orders = [*({"order": name} for name in ORDERS), {"order": "send-away", "who": "x"}]
    for given in [*orders, {"order": "set", "key": "sigma", "value": "1"}]:
        for token in (None, "Bearer ", "Bearer guess"):
            code = page.evaluate(
                """async ([given, token]) => (await fetch("api/runs/1/orders", {
                  method: "POST", body: JSON.stringify(given),
                  headers: { "Content-Type": "application/json", ...(token === null ? {} : { Authorization: token }) },
                })).status""",
                [given, token],
            )
            assert code in (403, 429)
    assert not run.folder.orders.exists()
    page.goto(f"{address}?#token=guess")
    page.reload()
    playwright.expect(page.locator("#state")).to_contain_text("Paused")
    assert page.locator("#operator").is_hidden()


def test_whoever_has_the_token_gives_every_order_by_the_page(page: "Page", address: str, run: Run) -> None:
    expect = playwright.expect
    page.goto(f"{address}?#token={TOKEN.replace(' ', '+')}")
    page.reload()
    show_status(run, volunteers=(volunteer("ada"),))
    expect(page.locator("#operator")).to_be_visible()
    expect(page.locator("[data-order=pause]")).to_be_enabled()
    expect(page.locator("[data-order=go-on]")).to_be_disabled()

    def gives(act: str, text: str) -> str:
        thread, taken = answered(run, text)
        page.click(act)
        expect(page.locator("#order-note")).to_have_text(text)
        thread.join()
        return type(taken[0]).__name__

    assert gives("[data-order=pause]", "paused at step 12") == "Pause"
    show_status(run, state="paused")
    expect(page.locator("[data-order=pause]")).to_be_disabled()
    assert gives("[data-order=go-on]", "it goes on") == "GoOn"
    assert gives("[data-order=checkpoint]", "a checkpoint was written") == "WriteCheckpoint"
    assert page.locator("#names option").get_attribute("value") == "ada"
    page.fill("#who", "ada")
    assert gives("#send-away button", "ada was sent away") == "SendAway"
    page.select_option("#key", "learning_rate")
    expect(page.locator("#value")).to_have_attribute("placeholder", "now 0.02")
    page.fill("#value", "0.5")
    assert gives("#change button", "learning_rate: 0.5") == "Set"
    page.once("dialog", lambda dialog: dialog.accept())
    assert gives("[data-order=finish]", "it ends at step 12") == "Finish"
    show_status(run, state="ended")
    expect(page.locator("#change button")).to_be_disabled()
    expect(page.locator("#operator-about")).to_contain_text("nobody takes orders")


def test_run_is_not_finished_before_the_question_is_answered(page: "Page", address: str, run: Run) -> None:
    page.goto(f"{address}?#token={TOKEN.replace(' ', '+')}")
    page.reload()
    show_status(run)
    playwright.expect(page.locator("[data-order=finish]")).to_be_enabled()
    asked: list[str] = []

    def decline(dialog: "Dialog") -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    page.once("dialog", decline)
    page.click("[data-order=finish]")
    assert asked == ["End the run? If its learning rate has not fallen yet, it does so first, in a tenth of its steps."]
    playwright.expect(page.locator("#order-note")).to_be_empty()


def test_answer_that_comes_after_the_stream_takes_nothing_back(page: "Page", address: str, run: Run) -> None:
    late: list[Route] = []
    page.goto("about:blank")  # and nothing is asked any more by the page before
    page.route("**/api/runs/1", lambda route: late.append(route))
    page.goto(address)
    entry = page.locator("#settings div", has=page.locator("dt", has_text="sigma")).first
    playwright.expect(entry).to_contain_text("0.02")
    while not late:  # which the page asks for after the first frames of its curve
        page.evaluate("() => new Promise(requestAnimationFrame)")
    (asked,) = late
    before = asked.fetch()
    run.folder.config.write_text(run.folder.config.read_text().replace('"sigma": 0.02', '"sigma": 0.5'))
    playwright.expect(entry).to_contain_text("0.5")
    with page.expect_request("**/api/runs/1/abilities"):
        asked.fulfill(response=before)
    playwright.expect(entry).to_contain_text("0.5")


def test_setting_that_is_changed_at_work_is_shown_in_force(page: "Page", run: Run) -> None:
    show_status(run)
    followed = Change(step=1200, time=1.0, key="max_learning_rate", value=0.0, before=0.5, along_with="learning_rate")
    append(run.folder.changes, [Change(step=1200, time=1.0, key="sigma", value=0.5, before=0.02), followed])
    run.folder.config.write_text(run.folder.config.read_text().replace('"sigma": 0.02', '"sigma": 0.5'))
    entry = page.locator("#settings div", has=page.locator("dt", has_text="sigma")).first
    playwright.expect(entry).to_contain_text("0.5Set by the operator at step 1,200; it was 0.02.")
    other = page.locator("#settings div", has=page.locator("dt", has_text="max learning rate")).first
    playwright.expect(other).to_contain_text(
        "Followed learning rate, which the operator set at step 1,200; it was 0.5."
    )
