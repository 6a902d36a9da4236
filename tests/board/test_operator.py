from typing import Any

import pytest
from starlette.testclient import TestClient

from fedlearn.board import operator as module
from fedlearn.runs.run import Run
from fedlearn.storage import orders
from tests.board.conftest import TOKEN
from tests.board.folders import answered, show_status

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"order": "pause"}, orders.Pause("the board")),
        ({"order": "go-on"}, orders.GoOn("the board")),
        ({"order": "checkpoint"}, orders.WriteCheckpoint("the board")),
        ({"order": "finish"}, orders.Finish("the board")),
        ({"order": "send-away", "who": "ada"}, orders.SendAway("the board", "ada")),
        ({"order": "set", "key": "sigma", "value": "0.1"}, orders.Set("the board", "sigma", "0.1")),
    ],
)
def test_order_reaches_the_server_and_its_answer_the_page(
    client: TestClient, run: Run, given: dict[str, Any], expected: orders.Order
) -> None:
    show_status(run)
    thread, taken = answered(run, "done at step 12")
    answer = client.post("/api/runs/1/orders", json=given, headers=BEARER)
    thread.join()
    assert (answer.status_code, answer.text, taken) == (200, "done at step 12", [expected])
    assert list(run.folder.orders.iterdir()) == []


@pytest.mark.parametrize("header", [None, "", "Bearer ", "Bearer x", f"bearer {TOKEN}", TOKEN, f"Bearer {TOKEN}x"])
def test_nobody_gives_orders_without_the_token(client: TestClient, run: Run, header: str | None) -> None:
    show_status(run)
    headers = {} if header is None else {"Authorization": header}
    assert client.post("/api/runs/1/orders", json={"order": "pause"}, headers=headers).status_code == 403
    assert client.get("/api/operator", headers=headers).status_code == 403
    assert not run.folder.orders.exists()


def test_token_can_not_be_guessed_by_trying(client: TestClient) -> None:
    wrong = {"Authorization": "Bearer x"}
    codes = [client.get("/api/operator", headers=wrong).status_code for _ in range(module.GUESSES_PER_MINUTE + 1)]
    assert codes == [403] * module.GUESSES_PER_MINUTE + [429]
    assert client.get("/api/operator", headers=BEARER).status_code == 200


@pytest.mark.parametrize("given", [{}, {"order": "stop"}, {"order": "set", "key": ""}, {"order": "pause", "more": 1}])
def test_what_is_no_order_is_refused(client: TestClient, run: Run, given: dict[str, Any]) -> None:
    show_status(run)
    assert client.post("/api/runs/1/orders", json=given, headers=BEARER).status_code == 400


def test_text_that_no_server_takes_is_refused(client: TestClient, run: Run) -> None:
    show_status(run)
    given = {"order": "send-away", "who": "\x1b[2J"}
    assert client.post("/api/runs/1/orders", json=given, headers=BEARER).status_code == 400


def test_order_to_nobody_and_one_that_is_not_taken_are_told(
    client: TestClient, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.3)
    pause = {"order": "pause"}
    answer = client.post("/api/runs/1/orders", json=pause, headers=BEARER)
    assert answer.text == "No server has this run just now."
    show_status(run)
    assert client.post("/api/runs/1/orders", json=pause, headers=BEARER).text == "The server did not take it."
    assert list(run.folder.orders.iterdir()) == []
