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

from fedlearn.compat import Node, Trainer, model_fusion, provider_trainer  # noqa: E402

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
            given["looked"](number * given["every"], 1.0 / number, {}, TRAINED)
        return SimpleNamespace(weights=TRAINED)

    monkeypatch.setattr(provider_trainer, "serve", serve)
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


def test_seats_hold_the_model_between_them_and_take_the_same_steps(
    served: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="fedlearn")
    trainer_of(node_of(seats=2, seed=5), folder=tmp_path).train()
    assert (served["seats"], served["seed"], served["gather"], served["steps"]) == (2, 5, 0, 4 * 4)
    assert {key: served[key] for key in GRADIENTS} == GRADIENTS
    assert (served["task"].batch_size, served["population_limit"]) == (5, 2)
    assert "2 nodes hold one model between them, each a part of it" in caplog.text


def test_figures_are_written_after_so_many_epochs_and_the_model_where_it_is_wanted(
    served: dict[str, Any], tmp_path: Path
) -> None:
    told: list[tuple[int, float, float]] = []

    class Told(Trainer):
        def on_epoch(self, epoch: int, loss: float, accuracy: float) -> None:
            told.append((epoch, loss, accuracy))
            super().on_epoch(epoch, loss, accuracy)

    loaders: dict[str, Any] = {"train_loader": DataLoader(ROWS, 10), "val_loader": DataLoader(HELD_OUT, 3)}
    for save in (False, True):
        trainer = Told(node=node_of(), epochs=4, val_freq=2, save=save, folder=tmp_path, **loaders)
        trainer.train()
        assert (tmp_path / "fused.safetensors").exists() == save
    assert served["every"] == 2 * 4
    assert [(epoch, loss) for epoch, loss, _ in told] == 2 * [(2, 1.0), (4, 0.5)]
    assert [accuracy for _, _, accuracy in told] == pytest.approx(4 * [2 / 6])
    assert (tmp_path / "losses.txt").read_text() == "1.0\n0.5\n"
    assert (tmp_path / "val_accuracies.txt").read_text().split() == 2 * [str(told[0][2])]
    assert load_file(tmp_path / "fused.safetensors")["bias"].tolist() == [0.0, 1.0, 0.0]


def test_the_trained_model_predicts_and_is_evaluated_on_the_first_node(served: dict[str, Any], tmp_path: Path) -> None:
    trainer = trainer_of(node_of(), folder=tmp_path)
    assert trainer.evaluate() is None
    trainer.train()
    assert served["task"] is trainer.task
    assert trainer.evaluate() == pytest.approx(2 / 6)
    assert trainer.evaluate(DataLoader(HELD_OUT, 4)) == pytest.approx(2 / 6)
    assert trainer.pred(torch.ones(1, 2)).tolist() == [[0.0, 1.0, 0.0]]
    assert not trainer.pred(torch.ones(1, 2)).requires_grad


def test_another_node_joins_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, str]] = []

    def await_seat(host: str, port: int, *, name: str) -> int:
        asked.append((host, port, name))
        return 3

    monkeypatch.setattr(provider_trainer, "await_seat", await_seat)
    trainer = trainer_of(node_of("node_2", host="192.0.2.1", port=5))
    assert trainer.train() == 3
    assert asked == [("192.0.2.1", 5, "node_2")]
    assert trainer.evaluate(DataLoader(HELD_OUT, 4)) is None


def test_what_has_no_meaning_is_taken_with_one_warning() -> None:
    typed: dict[str, Any] = {
        "reduce_factor": 4,
        "compression": False,
        "average_optim": True,
        "device": torch.device("cuda"),
        "lr_scheduler": lr_scheduler.ReduceLROnPlateau,
    }
    with pytest.warns(UserWarning, match="without effect") as found:
        node_of(**typed, lr_scheduler_params={"patience": 3})
    (warning,) = found
    for word in ("reduce_factor: ", "compression: ", "average_optim: ", "device: ", "lr_scheduler: "):
        assert word in str(warning.message)
    assert warning.filename == __file__


def test_the_rate_follows_the_scheduler_at_the_beginning_of_epochs(served: dict[str, Any], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        node = node_of(lr_scheduler=lr_scheduler.StepLR, lr_scheduler_params={"step_size": 2}, device="cpu")
    trainer_of(node, folder=tmp_path).train()
    assert served["learning_rate_factors"] == "0:1 8:0.1"
    trainer_of(node_of(), folder=tmp_path).train()
    assert served["learning_rate_factors"] == ""
    with pytest.raises(ValueError, match="update_frequency: expected 1 batch or more, got 0"):
        node_of(update_frequency=0)


def one_hot_loader(n_rows: int) -> DataLoader[Any]:
    rows = [(np.full(2, row, dtype=np.float64), F.one_hot(torch.tensor(row % 3), 3).float()) for row in range(n_rows)]
    return DataLoader(rows, 10)  # type: ignore[arg-type]  # as it is typed


@pytest.mark.parametrize(
    "criterion", [F.mse_loss, lambda found, targets: F.mse_loss(found, targets[1])], ids=["labels", "rows and labels"]
)
def test_loaders_may_stand_for_labels(served: dict[str, Any], tmp_path: Path, criterion: Any) -> None:  # noqa: ANN401
    train, validation = one_hot_loader(40), one_hot_loader(6)
    node = Node(name="node_0", model=nn.Linear(2, 3), criterion=criterion, labels=train, test_labels=validation)
    trainer = Trainer(node=node, epochs=4, train_loader=train, val_loader=validation, batch_size=10, folder=tmp_path)
    trainer.train()
    rows = {name: torch.as_tensor(column[:2]) for name, column in served["task"].data.items()}
    assert rows["x"].dtype == torch.float32
    expected = F.mse_loss(served["task"].model(rows["x"]), rows["label"])
    assert torch.equal(served["task"]._loss(served["task"].model, rows), expected)
    assert trainer.accuracy == pytest.approx(2 / 6)


def test_a_saved_model_is_fused(served: dict[str, Any], tmp_path: Path) -> None:
    trainer_of(node_of(), folder=tmp_path, save=True).train()
    assert served
    path = model_fusion(cluster_id=0, folder=tmp_path)
    assert path == tmp_path / "trained" / "trained_state_dict.pt"
    assert torch.load(path)["bias"].tolist() == [0.0, 1.0, 0.0]


def test_only_the_first_node_needs_a_model_data_and_a_criterion(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = Trainer(node=Node(name="node_1"))
    with pytest.raises(ValueError, match="node_1: expected node_0, which alone has the model"):
        trainer.pred(torch.ones(1, 2))
    with pytest.raises(ValueError, match=r"model: expected a module, or node_data/model.pt"):
        Node(name="node_0")
    with pytest.raises(ValueError, match="node_0: expected train_loader, val_loader and a criterion"):
        Trainer(node=Node(name="node_0", model=nn.Linear(1, 1)))


def test_averages_of_batch_norms_are_measured_with_the_trained_weights(served: dict[str, Any], tmp_path: Path) -> None:
    model = nn.Sequential(nn.BatchNorm1d(2, affine=False), nn.Linear(2, 3))
    node = Node(name="node_0", model=model, criterion=F.cross_entropy, labels=ROWS.tensors[1],
                test_labels=HELD_OUT.tensors[1])  # fmt: skip
    trainer = trainer_of(node, folder=tmp_path)
    trainer.train()
    assert served
    torch.testing.assert_close(model[0].running_mean, ROWS.tensors[0].mean(0))
