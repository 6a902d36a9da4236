"""The names of a library for ranks of torchrun: a model in shards, tensor parallelism, training with evaluation.

A network that fits into each rank is not cut here, whatever a script says of shards and meshes: all ranks hold the
whole, and share the rows of each batch.
"""

import argparse
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fedlearn.compat.provider import ProviderNode
from fedlearn.compat.provider_trainer import ProviderTrainer
from fedlearn.hub.bodies import DatasetConfig
from fedlearn.hub.jobs.datasets import images_of
from fedlearn.launch.gang import GangRank

DEFAULT_MASTER_PORT = 29500
"""The port that torchrun takes where it is given none."""

DATA = Path("data")


def get_args() -> argparse.Namespace:
    """The flags of these scripts; others are left to the script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", help="taken, and without effect: ranks compute on processors")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--split_size", type=int, default=4, help="taken, and without effect")
    parser.add_argument("--model_name", default="model", help="the file of the model")
    return parser.parse_known_args()[0]


def get_torchvision_dataset(name: str, batch_size: int) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Loaders of images to learn from and of held-out ones, by torchvision's name, from the folder `data` or the web.

    Images are [channels, side, side] from 0 to 1.

    Raises:
        ValueError: they are neither in the folder nor to be fetched.
    """
    found = images_of(DatasetConfig(name=name), DATA)
    if found.is_stand_in:
        raise ValueError(
            f"{name}: expected its files in {DATA / name} or {DATA / name}.npz, or torchvision and the web"
        )
    side = round((found.n_pixels / found.n_channels) ** 0.5)

    def loader(images: Any, labels: Any) -> DataLoader[Any]:  # noqa: ANN401 (arrays)
        scaled = torch.from_numpy(np.asarray(images, dtype=np.float32) / 255.0)
        rows = TensorDataset(scaled.reshape(-1, found.n_channels, side, side), torch.from_numpy(labels))
        return DataLoader(rows, batch_size)

    return loader(found.images, found.labels), loader(found.held_out_images, found.held_out_labels)


class _Here:
    """A value that shards take as one that may be elsewhere."""

    def __init__(self, value: Tensor) -> None:
        self._value = value

    def to_here(self) -> Tensor:
        return self._value


@final
class DistributedModel(nn.Module):
    """Shards one after another, each made for a device and called with a reference to its input, as one module."""

    def __init__(
        self,
        split_size: int,
        workers: Sequence[str],
        devices: Sequence[str],
        shards: Sequence[Callable[[str], nn.Module]],
    ) -> None:
        super().__init__()
        del split_size, workers, devices
        self.shards = nn.ModuleList(shard("cpu") for shard in shards)

    def forward(self, x: Tensor) -> Tensor:
        for shard in self.shards:
            x = shard(_Here(x))
        return x


def get_tp_model(
    model: nn.Module, plan: Mapping[str, object], device: str = "cpu", mesh_shape: Sequence[int] = ()
) -> nn.Module:
    """The model itself, which each rank holds whole; how a plan would cut it makes no difference to what it learns."""
    del plan, device, mesh_shape
    return model


def get_model_2d(model: nn.Module, plan: Mapping[str, object], device: str, tp_size: int) -> nn.Module:
    """The model itself, as `get_tp_model`: a mesh of data and tensor parallelism learns what its rows teach."""
    del plan, device, tp_size
    return model


def train_eval(
    model: nn.Module,
    train_dataloader: DataLoader[Any],
    test_dataloader: DataLoader[Any],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    epochs: int,
    batch_size: int,
    device: str = "cpu",
) -> None:
    """Trains with all ranks, and evaluates after each epoch; the model of rank 0 has the trained weights then.

    Raises:
        SystemExit: rank 0 was not to be found.
    """
    del device  # ranks compute on processors
    known = ("lr", "momentum", "betas", "weight_decay")
    options = {name: value for name, value in optimizer.defaults.items() if name in known and value}
    _train(model, train_dataloader, test_dataloader, loss_fn, type(optimizer), options, epochs, batch_size)


sequence_train_eval = train_eval
"""The same for scripts that cut rows along a sequence."""


def run_worker(
    rank: int,
    world_size: int,
    model_params: tuple[Any, ...],
    train_dataloader: DataLoader[Any],
    test_dataloader: DataLoader[Any],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    optimizer_class: type[torch.optim.Optimizer],
    epochs: int,
    batch_size: int,
    lr: float,
) -> None:
    """Trains a model in shards with all ranks, and saves it under the name of `--model_name`."""
    del rank, world_size  # torchrun says them
    model = DistributedModel(*model_params)
    _train(model, train_dataloader, test_dataloader, loss_fn, optimizer_class, {"lr": lr}, epochs, batch_size)
    save_model(model, get_args().model_name)


def save_model(model: nn.Module, name: str) -> None:
    """Writes the `state_dict` as `NAME.pt`; other ranks than 0, which are sent no weights at the end, write nothing."""
    if GangRank.of(os.environ).rank == 0:
        torch.save(model.state_dict(), f"{name}.pt")


class _RankTrainer(ProviderTrainer):
    """A trainer that says the figures of each epoch."""

    def on_epoch(self, epoch: int, loss: float, accuracy: float) -> None:
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)


def _train(
    model: nn.Module,
    training: DataLoader[Any],
    held_out: DataLoader[Any],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    optimizer: type[torch.optim.Optimizer],
    options: Mapping[str, Any],
    epochs: int,
    batch_size: int,
) -> None:
    place = GangRank.of(os.environ)
    others = place.master if place.rank else "0.0.0.0"
    node = ProviderNode(
        name=f"node_{place.rank}",
        model=model,
        criterion=loss_fn,
        labels=_labels(training),
        test_labels=_labels(held_out),
        optimizer=optimizer,
        optimizer_params=options,
        nodes=place.size,
        host="127.0.0.1" if place.is_on_one_machine else others,
        # One that two gangs on a machine never share.
        port=int(os.environ.get("MASTER_PORT", DEFAULT_MASTER_PORT)) + 1,
    )
    trainer = _RankTrainer(node=node, epochs=epochs, train_loader=training, val_loader=held_out, batch_size=batch_size)
    if code := trainer.train():
        raise SystemExit(code)


def _labels(loader: DataLoader[Any]) -> Tensor | Iterable[Any]:
    """The labels of a loader's rows, at once where its data set has them as a tensor."""
    rows = loader.dataset
    return rows.tensors[1] if isinstance(rows, TensorDataset) else loader
