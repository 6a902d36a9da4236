"""A task served from Python, and a volunteer that has no more than the address."""

import gc
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlearn.config import ConfigError
from fedlearn.es.layout import Float32Array

pytest.importorskip("torch")

from torch import Tensor, manual_seed, nn

from fedlearn.compat.crew import await_seat, serve
from fedlearn.tasks.torch.supervised import Supervised, supervised
from tests.end_to_end.processes import free_port

SETTINGS: dict[str, Any] = {
    "sigma": 0.1,
    "learning_rate": 0.1,
    "group_size": 8,
    "population_limit": 16,
    "time_per_step": 60.0,
}


@pytest.fixture(autouse=True)
def _collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def line() -> Supervised:
    manual_seed(0)  # tests before this one may have drawn the first weights
    x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]

    def loss(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
        error: Tensor = ((model(rows["x"]) - rows["y"]) ** 2).mean()
        return error

    return supervised(nn.Linear(1, 1), loss, {"x": x, "y": 2 * x}, metrics={"error": loss})


def test_a_volunteer_trains_what_is_served_and_looks_see_the_weights_of_their_step(tmp_path: Path) -> None:
    port, seen = free_port(), []

    def looked(step: int, loss: float, figures: Mapping[str, float], weights: Mapping[str, Float32Array]) -> None:
        seen.append((step, loss, dict(figures), {name: tensor.copy() for name, tensor in weights.items()}))

    with ThreadPoolExecutor(2) as threads:
        volunteer = threads.submit(await_seat, "127.0.0.1", port, name="one")
        serving = threads.submit(serve, line(), port=port, every=4, looked=looked, steps=12, runs=tmp_path, **SETTINGS)
        trained = serving.result(60)
        assert volunteer.result(10) == 0
    assert [step for step, *_ in seen] == [4, 8, 12]
    assert [loss for _, loss, *_ in seen] == trained.losses[3::4]
    assert {name: tensor.tolist() for name, tensor in seen[-1][3].items()} == {
        name: tensor.tolist() for name, tensor in trained.weights.items()
    }
    assert seen[-1][2] == trained.figures
    assert seen[-1][2]["error"] < seen[0][2]["error"]


def test_a_model_that_has_fewer_pieces_than_seats_is_refused_before_anybody_is_awaited(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seats, shards: expected a model that can be divided among 3"):
        serve(line(), port=0, seats=3, steps=1, runs=tmp_path, **SETTINGS)
