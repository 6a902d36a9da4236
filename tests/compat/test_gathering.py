"""Orders of a run that waits for its machines."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="compat is of PyTorch")

from fedlearn.callback import Begun
from fedlearn.compat.gathering import WHO, Gathering
from fedlearn.storage.orders import GoOn, Order, Pause, take
from fedlearn.storage.runs import RunFolder


def orders_of(folder: Path, n_volunteers: int, n_joined: int) -> list[Order]:
    gathering = Gathering(n_volunteers)
    gathering.on_begin(Begun("1", folder, "examples", 0, 3, {}))
    for number in range(n_joined):
        gathering.on_join(f"node_{number}")
    return [order for _, order in take(RunFolder(folder).orders)[0]]


@pytest.mark.parametrize(("n_joined", "expected"), [(0, 1), (2, 1), (3, 2), (4, 2)])
def test_a_run_is_paused_until_all_have_joined(tmp_path: Path, n_joined: int, expected: int) -> None:
    assert orders_of(tmp_path, 3, n_joined) == [Pause(by=WHO), GoOn(by=WHO)][:expected]


@pytest.mark.parametrize("n_volunteers", [0, 1])
def test_nobody_is_awaited_where_one_is_enough(tmp_path: Path, n_volunteers: int) -> None:
    assert orders_of(tmp_path, n_volunteers, 2) == []
