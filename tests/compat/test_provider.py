"""Nodes and trainers: what is served for what was typed."""

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.optim import lr_scheduler  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from fedlearn.compat import Node, Trainer, provider  # noqa: E402

ROWS = TensorDataset(torch.arange(80.0).reshape(40, 2), torch.arange(40) % 3)
HELD_OUT = TensorDataset(torch.ones(6, 2), torch.tensor([0, 0, 0, 1, 1, 2]))
TRAINED = {"weight": np.zeros((3, 2), dtype=np.float32), "bias": np.array([0.0, 1.0, 0.0], dtype=np.float32)}
GRADIENTS = {"measure": "gradients", "local_steps": 1, "sum_bits": 8, "time_per_step": 600.0}


def node_of(name: str = "node_0", **given: Any) -> Node:  # noqa: ANN401
    labels = {"labels": ROWS.tensors[1], "test_labels": HELD_OUT.tensors[1]}
    return Node(name=name, model=nn.Linear(2, 3), criterion=F.cross_entropy, **{**labels, **given})


def trainer_of(node: Node, **given: Any) -> Trainer:  # noqa: ANN401
    return Trainer(node=node, epochs=4, train_loader=DataLoader(ROWS, 10), val_loader=DataLoader(HELD_OUT, 3), **given)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of the run that is served, which ends at once and was looked at after two epochs and four."""
    seen: dict[str, Any] = {}

    def serve(task: object, **given: Any) -> SimpleNamespace:  # noqa: ANN401
        seen.update(given, task=task)
        for number in (1, 2):
            given["looked"](number * given["every"], 1.0 / number, {"accuracy": 0.5}, TRAINED)
        return SimpleNamespace(weights=TRAINED, figures={"accuracy": 0.625})

    monkeypatch.setattr(provider, "serve", serve)
    return seen


@pytest.mark.parametrize(
    ("given", "members", "rows", "steps"),
    [
        ({}, 5, 2, 4 * 4),
        ({"nodes": 7}, 10, 1, 4 * 4),
        ({"nodes": 2}, 2, 5, 4 * 4),
        ({"nodes": 2, "update_frequency": 2}, 4, 5, 4 * 2),
        ({"nodes": 64}, 10, 1, 4 * 4),
    ],
)
def test_nodes_with_a_whole_model_share_the_rows_of_each_batch(
    served: dict[str, Any], tmp_path: Path, given: Mapping[str, Any], members: int, rows: int, steps: int
) -> None:
    node = node_of(optimizer_params={"lr": 0.25}, **given)
    assert trainer_of(node, folder=tmp_path).train() == 0
    expected = {**GRADIENTS, "optimizer": "adam", "learning_rate": 0.25, "population_limit": members, "steps": steps}
    assert {key: served[key] for key in expected} == expected
    assert (served["every"], served["gather"]) == (steps // 4, given.get("nodes", 3))
    assert served["task"].batch_size == rows
    assert "seats" not in served


def test_seats_hold_the_model_between_them_and_measure_losses(
    served: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="fedlearn")
    trainer_of(node_of(seats=2, sigma=0.5), folder=tmp_path).train()
    assert (served["seats"], served["sigma"], served["gather"], served["steps"]) == (2, 0.5, 0, 4 * 4)
    assert "measure" not in served
    assert served["task"].batch_size == 10
    assert "2 nodes hold one model between them, so that training is forward only" in caplog.text


def test_figures_are_written_after_so_many_epochs_and_the_model_where_it_is_wanted(
    served: dict[str, Any], tmp_path: Path
) -> None:
    told: list[tuple[int, float, float]] = []

    class Told(Trainer):
        def on_epoch(self, epoch: int, loss: float, accuracy: float) -> None:
            told.append((epoch, loss, accuracy))
            super().on_epoch(epoch, loss, accuracy)

    loaders = {"train_loader": DataLoader(ROWS, 10), "val_loader": DataLoader(HELD_OUT, 3)}
    for save in (False, True):
        trainer = Told(node=node_of(), epochs=4, val_freq=2, save=save, folder=tmp_path, **loaders)
        trainer.train()
        assert (tmp_path / "fused.safetensors").exists() == save
    assert served["every"] == 2 * 4
    assert told == 2 * [(2, 1.0, 0.5), (4, 0.5, 0.5)]
    assert (tmp_path / "losses.txt").read_text() == "1.0\n0.5\n"
    assert (tmp_path / "val_accuracies.txt").read_text() == "0.5\n0.5\n"
    assert load_file(tmp_path / "fused.safetensors")["bias"].tolist() == [0.0, 1.0, 0.0]


def test_the_trained_model_predicts_and_is_evaluated_on_the_first_node(served: dict[str, Any], tmp_path: Path) -> None:
    trainer = trainer_of(node_of(), folder=tmp_path)
    assert trainer.evaluate() is None
    trainer.train()
    assert served["task"] is trainer.task
    assert trainer.evaluate() == 0.625
    assert trainer.evaluate(DataLoader(HELD_OUT, 4)) == pytest.approx(2 / 6)
    assert trainer.pred(torch.ones(1, 2)).tolist() == [[0.0, 1.0, 0.0]]
    assert not trainer.pred(torch.ones(1, 2)).requires_grad


def test_another_node_joins_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, str]] = []

    def await_seat(host: str, port: int, *, name: str) -> int:
        asked.append((host, port, name))
        return 3

    monkeypatch.setattr(provider, "await_seat", await_seat)
    trainer = trainer_of(node_of("node_2", host="192.0.2.1", port=5))
    assert trainer.train() == 3
    assert asked == [("192.0.2.1", 5, "node_2")]
    assert trainer.evaluate(DataLoader(HELD_OUT, 4)) is None


def test_what_has_no_meaning_is_taken_with_one_warning() -> None:
    typed: dict[str, Any] = {
        "reduce_factor": 4,
        "compression": False,
        "average_optim": True,
        "lr_scheduler": lr_scheduler.StepLR,
    }
    with pytest.warns(UserWarning, match="without effect") as found:
        node_of(**typed, lr_scheduler_params={"step_size": 3})
    (warning,) = found
    for word in ("reduce_factor: ", "compression: ", "average_optim: ", "StepLR(step_size=3)"):
        assert word in str(warning.message)
    assert warning.filename == __file__


def test_what_has_a_meaning_is_taken_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        node = node_of(lr_scheduler=lr_scheduler.CosineAnnealingLR, lr_scheduler_params={"T_max": 4})
    assert node.settings["learning_rate_schedule"] == "cosine"
    with pytest.raises(ValueError, match="update_frequency: expected 1 batch or more, got 0"):
        node_of(update_frequency=0)
