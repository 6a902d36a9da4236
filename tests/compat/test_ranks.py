"""The names of a library for ranks; tests/acceptance has whole scripts."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from fedlearn.compat import Node, Trainer, ranks  # noqa: E402

ROWS = DataLoader(TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6) % 2), 3)


class Shard(nn.Module):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Any) -> Tensor:  # noqa: ANN401 (a reference)
        found: Tensor = self.layer(x.to_here().to(self.device))
        return found


def test_shards_are_one_module_on_processors() -> None:
    model = ranks.DistributedModel(4, ["worker1"], ["cuda:0"], [Shard, Shard])
    first, second = model.shards
    x = torch.ones(3, 2)
    torch.testing.assert_close(model(x), F.linear(F.linear(x, *first.parameters()), *second.parameters()))
    assert {*model.state_dict()} == {f"shards.{n}.layer.{name}" for n in (0, 1) for name in ("weight", "bias")}


def test_a_plan_leaves_the_model_whole() -> None:
    model = nn.Linear(2, 2)
    assert ranks.get_tp_model(model, {"in_proj": object()}, "cpu", (2,)) is model
    assert ranks.get_model_2d(model, {"in_proj": object()}, "cpu", 2) is model


def test_flags_are_those_of_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = "main.py --gpu=0_0_0 --epochs=4 --batch_size=50 --lr=0.01 --model_name=ppl_04 --own"
    monkeypatch.setattr(sys, "argv", typed.split())
    args = ranks.get_args()
    found = (args.gpu, args.epochs, args.batch_size, args.lr, args.model_name, args.split_size)
    assert found == ("0_0_0", 4, 50, 0.01, "ppl_04", 4)


def test_images_come_from_the_data_folder_and_no_other_ones_in_their_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ValueError, match=r"MNIST: expected its files in data/MNIST or data/MNIST.npz"):
        ranks.get_torchvision_dataset("MNIST", 2)
    (tmp_path / "data").mkdir()
    images, labels = np.full((4, 6, 6), 255, dtype=np.uint8), np.arange(4)
    np.savez(tmp_path / "data" / "MNIST.npz", x_train=images, y_train=labels, x_test=images[:2], y_test=labels[:2])
    training, held_out = ranks.get_torchvision_dataset("MNIST", 2)
    x, label = next(iter(training))
    assert x.shape == (2, 1, 6, 6)
    assert (x.max().item(), label.tolist(), training.batch_size) == (1.0, [0, 1], 2)
    assert len(held_out) == 1


@pytest.mark.parametrize(
    ("rank", "n_local", "host"), [(0, 2, "127.0.0.1"), (1, 2, "127.0.0.1"), (0, 1, "0.0.0.0"), (1, 1, "192.0.2.1")]
)
def test_rank_0_serves_and_others_join_it_beside_the_port_of_their_gang(
    monkeypatch: pytest.MonkeyPatch, rank: int, n_local: int, host: str
) -> None:
    gang = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": n_local, "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": 9999}
    for name, value in gang.items():
        monkeypatch.setenv(name, str(value))
    seen: list[Node] = []

    def train(trainer: Trainer) -> int:
        seen.append(trainer.node)
        return 7 if rank else 0

    monkeypatch.setattr(Trainer, "train", train)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.5)
    if rank:
        with pytest.raises(SystemExit, match="7"):
            ranks.train_eval(model, ROWS, ROWS, F.cross_entropy, optimizer, 3, 4, "cpu")
    else:
        ranks.train_eval(model, ROWS, ROWS, F.cross_entropy, optimizer, 3, 4, "cpu")
    (node,) = seen
    assert (node.number, node.nodes, node.host, node.port) == (rank, 2, host, 10000)
    assert node.settings["learning_rate"] == 0.25
    assert node.settings["beta1"] == 0.5


def test_only_rank_0_saves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for rank in (1, 0):
        assert not (tmp_path / "model.pt").exists()
        monkeypatch.setenv("RANK", str(rank))
        ranks.save_model(nn.Linear(2, 2), str(tmp_path / "model"))
    assert torch.load(tmp_path / "model.pt")["weight"].shape == (2, 2)
