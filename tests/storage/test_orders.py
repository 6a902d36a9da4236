import os
import stat
from pathlib import Path

import pytest

from fedlearn.storage import orders as module
from fedlearn.storage.durable import StorageError
from fedlearn.storage.orders import (
    MAX_BYTES,
    Answer,
    GoOn,
    Order,
    OrderFile,
    Pause,
    SendAway,
    Set,
    Stop,
    WriteCheckpoint,
    answer_to,
    clear,
    give,
    is_taken,
    reply,
    take,
    withdraw,
)

ORDERS: list[Order] = [
    Pause("Ada"),
    GoOn("Ada"),
    WriteCheckpoint("Ada"),
    SendAway("Ada", "Bob"),
    Set("Ada", "learning_rate", "0.1"),
    Stop("Ada"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders"


def test_orders_are_taken_once_in_the_order_in_which_they_were_given(folder: Path) -> None:
    slips = [give(folder, order) for order in ORDERS]
    assert not any(map(is_taken, slips))
    assert take(folder) == (list(zip(slips, ORDERS, strict=True)), [])
    assert all(map(is_taken, slips))
    assert take(folder) == ([], [])


def test_who_gave_an_order_hears_what_came_of_it(folder: Path) -> None:
    slip = give(folder, ORDERS[0])
    assert answer_to(slip) is None
    ((taken, _),), _ = take(folder)
    reply(taken, Answer(True, "paused at step 7"))
    assert answer_to(slip) == Answer(True, "paused at step 7")
    withdraw(slip)
    assert list(folder.iterdir()) == []


def test_order_that_is_withdrawn_is_not_given(folder: Path) -> None:
    withdraw(give(folder, ORDERS[0]))
    assert take(folder) == ([], [])


def test_folder_is_its_owners_alone(folder: Path) -> None:
    give(folder, ORDERS[0])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 3000,
        b'{"order":"delete","by":"Ada"}',
        b'{"order":"pause"}',
        b'{"order":"pause","by":"Ada","step":1}',
        b'{"order":"pause","by":""}',
        b'{"order":"pause","by":"\\u001b[2J"}',
        b'{"order":"send-away","by":"Ada","who":7}',
        b'{"order":"pause","by":"Ada"}' + b" " * MAX_BYTES,
    ],
)
def test_file_that_is_no_order_is_set_aside_and_said_once(folder: Path, content: bytes) -> None:
    folder.mkdir()
    path = folder / "1.order"
    path.write_bytes(content)
    slip = give(folder, ORDERS[1])
    taken, (problem,) = take(folder)
    assert taken == [(slip, ORDERS[1])]
    assert problem.startswith(f"{path}: expected an order: ")
    assert [entry.name for entry in folder.iterdir()] == ["1.refused"]
    assert take(folder) == ([], [])


def test_pipe_in_the_place_of_an_order_holds_nobody_up(folder: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / "1.order")
    (folder / "2.order").symlink_to("/dev/zero")
    taken, problems = take(folder)
    assert (taken, len(problems)) == ([], 2)


def test_link_to_a_file_of_somebody_elses_is_no_order(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_bytes(b'{"order":"pause","by":"Ada"}')
    folder.mkdir()
    (folder / "1.order").symlink_to(target)
    taken, problems = take(folder)
    assert (taken, len(problems)) == ([], 1)
    assert target.exists()


def test_only_so_many_orders_are_taken_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TAKEN", 2)
    slips = [give(folder, order) for order in ORDERS[:3]]
    assert [slip for slip, _ in take(folder)[0]] == slips[:2]
    assert [slip for slip, _ in take(folder)[0]] == slips[2:]


def test_what_a_server_left_behind_is_dropped_when_the_next_one_begins(folder: Path) -> None:
    reply(give(folder, ORDERS[0]), Answer(True, "done"))
    (folder / "1.order.partial").touch()
    clear(folder)
    assert list(folder.iterdir()) == []


def test_folder_without_orders_has_none(folder: Path) -> None:
    assert take(folder) == ([], [])


def test_text_that_no_server_takes_is_refused_before_it_is_given(folder: Path) -> None:
    for who in ("", "x" * 257, "a\nb"):
        with pytest.raises(ValueError, match="who"):
            give(folder, SendAway("Ada", who))
    assert not folder.exists()


def test_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "orders").touch()
    with pytest.raises(StorageError, match="orders: expected a folder for orders that can be made: File exists"):
        give(tmp_path / "orders", ORDERS[0])


def test_answer_that_can_not_be_read_is_none(folder: Path) -> None:
    slip = OrderFile(folder, "1")
    folder.mkdir()
    slip.answer.write_bytes(b"{")
    assert answer_to(slip) is None
