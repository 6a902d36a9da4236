"""The trainer of a node of providers."""

import logging
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_model
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fedlearn.compat.crew import await_seat, serve
from fedlearn.compat.models import trainable
from fedlearn.compat.normalization import measure_averages
from fedlearn.compat.optimizers import rate_factors
from fedlearn.compat.provider import ProviderNode
from fedlearn.compat.sharing import SharedBatch
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.torch.supervised import Rows, Supervised, supervised
from fedlearn.terminal import Terminal

_LOG = logging.getLogger("fedlearn")

PIECE = 1024
"""Rows that are evaluated together."""

FUSED = "fused.safetensors"


class ProviderTrainer:
    """Trains for some epochs, each a pass over the rows; `on_epoch` is for subclasses.

    `train_loader` and `val_loader` are read once: their data sets and batch size count, the order of rows is the run's.
    After each `val_freq` epochs the model is looked at, and `losses.txt` and `val_accuracies.txt` in the folder get a
    line. With `save` the trained model is written as `fused.safetensors`.

    Raises:
        ValueError: node_0 lacks a criterion or labels.
    """

    def __init__(
        self,
        *,
        node: ProviderNode,
        epochs: int = 1,
        train_loader: DataLoader[Any] | None = None,
        val_loader: DataLoader[Any] | None = None,
        val_freq: int = 1,
        save: bool = False,
        folder: str | Path = ".",
        batch_size: int = 0,
        inputs_dtype: torch.dtype = torch.float32,
    ) -> None:
        self.node, self.epochs, self.val_freq, self.save = node, epochs, val_freq, save
        self.folder = Path(folder)
        self.accuracy: float | None = None
        if node.number > 0:
            return  # it is sent what it needs
        if train_loader is None or val_loader is None or node.criterion is None:
            raise ValueError(f"{node.name}: expected train_loader, val_loader and a criterion, got none of one of them")
        self.rows, self.held_out = (
            _columns(loader, labels, inputs_dtype)
            for loader, labels in ((train_loader, node.labels), (val_loader, node.test_labels))
        )
        size = batch_size or train_loader.batch_size or 1
        self.batch = SharedBatch.of(size, node.seats or node.nodes, n_batches=node.update_frequency)
        self.steps_per_epoch = self.batch.steps_of(len(self.rows["label"]))
        self.task = self._task()

    def train(self) -> int:
        """Trains until all epochs are over, or the node that serves has ended; gives the exit code."""
        node = self.node
        if node.number > 0:
            return await_seat(node.host, node.port, name=node.name)
        _LOG.info(
            "%s: %s", node.name, f"{node.seats} nodes hold one model between them, each a part of it"
            if node.seats else f"{node.nodes} nodes hold the whole model each, and share the rows of each batch",
        )  # fmt: skip
        trained = serve(
            self.task,
            host=node.host,
            port=node.port,
            volunteers=1,
            gather=0 if node.seats else node.nodes,
            every=self.steps_per_epoch * self.val_freq,
            looked=self._looked,
            steps=self.epochs * self.steps_per_epoch,
            learning_rate_factors=self._factors(),
            callbacks=(),
            feed=None,
            **{**self.batch.settings, **({"seats": node.seats} if node.seats else {}), **node.settings},
        )
        self.accuracy = self._measured(trained.weights)
        if self.save:
            save_model(self._model, str(self.folder / FUSED))
        return 0

    def on_epoch(self, epoch: int, loss: float, accuracy: float) -> None:
        """Called on node_0 after each `val_freq` epochs, with the loss of the last step and the validation accuracy."""
        _LOG.info("epoch %d: loss %.4f, validation accuracy %.4f", epoch, loss, accuracy)
        for name, figure in (("losses", loss), ("val_accuracies", accuracy)):
            with (self.folder / f"{name}.txt").open("a" if epoch > self.val_freq else "w") as file:
                file.write(f"{figure}\n")

    def evaluate(self, loader: Iterable[tuple[Tensor, Tensor]] | None = None) -> float | None:
        """The accuracy of the trained model, on other rows if they are given, which is also said; None on nodes that
        serve nothing."""
        if self.accuracy is None:
            return None
        found = self.accuracy if loader is None else _accuracy(self._model, loader)
        Terminal(plain=True).say(f"Accuracy: {found:.4f}")
        return found

    @torch.no_grad()
    def pred(self, x: Tensor) -> Tensor:
        """The output of the node's model, which on node_0 is the trained one once `train` has ended."""
        found: Tensor = self._model(x)
        return found

    @property
    def _model(self) -> nn.Module:
        if self.node.model is None:
            raise ValueError(f"{self.node.name}: expected node_0, which alone has the model, got another node")
        return self.node.model

    def _task(self) -> Supervised:
        model = trainable(self._model, self.rows["x"][: self.batch.part_size])
        criterion, wants_rows = self.node.criterion, False
        assert criterion is not None, "checked before"
        if not isinstance(self.node.labels, Tensor):
            wants_rows = self._wants_rows()

        def loss(module: nn.Module, rows: Rows) -> Tensor:
            x, label = rows["x"], rows["label"]
            return criterion(module(x), [x, label] if wants_rows else label)

        return supervised(model, loss, self.rows, batch_size=self.batch.part_size)

    @torch.no_grad()
    def _wants_rows(self) -> bool:
        """Whether the criterion takes what a loader of labels gives: inputs, and labels behind them."""
        assert self.node.criterion is not None, "checked before"
        x, label = (self.rows[name][:2] for name in ("x", "label"))
        try:
            self.node.criterion(self._model.eval()(x), [x, label])
        except (AttributeError, TypeError):
            return False
        return True

    def _factors(self) -> str:
        node = self.node
        rate = float(node.settings["learning_rate"])
        found = rate_factors(node.lr_scheduler, node.lr_scheduler_params, rate, epochs=self.epochs)
        changed = [(0, found[0])] if found else []
        changed += [(epoch, after) for epoch, (before, after) in enumerate(pairwise(found), 1) if after != before]
        return " ".join(f"{epoch * self.steps_per_epoch}:{factor:.9g}" for epoch, factor in changed)

    def _looked(
        self, step: int, loss: float, figures: Mapping[str, float], weights: Mapping[str, Float32Array]
    ) -> None:
        del figures
        self.on_epoch(step // self.steps_per_epoch, loss, self._measured(weights))

    def _measured(self, weights: Mapping[str, Float32Array]) -> float:
        """The validation accuracy of the node's model, which has these weights then."""
        model = self._model
        model.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in weights.items()}, strict=False)
        measure_averages(model, torch.split(self.rows["x"], self.batch.part_size))
        return _accuracy(model, [(self.held_out["x"], self.held_out["label"])])


def model_fusion(cluster_id: int = 0, folder: str | Path = ".") -> Path:
    """Writes the trained model of a trainer that saves as `trained/trained_state_dict.pt`; gives the path."""
    del cluster_id  # all clusters have one model
    target = Path(folder) / "trained" / "trained_state_dict.pt"
    target.parent.mkdir(exist_ok=True)
    torch.save(load_file(Path(folder) / FUSED), target)
    return target


def _columns(loader: DataLoader[Any], labels: object, dtype: torch.dtype) -> dict[str, Tensor]:
    """The rows of a loader's data set, in its order, with their labels: a tensor's, or those behind the inputs."""
    rows: Any = loader.dataset
    n_rows = len(labels) if isinstance(labels, Tensor) else len(rows)
    x = torch.stack([torch.as_tensor(rows[row][0]) for row in range(n_rows)])
    if not isinstance(labels, Tensor):
        labels = torch.stack([torch.as_tensor(rows[row][1]) for row in range(n_rows)])
    return {"x": x.to(dtype) if x.is_floating_point() else x, "label": labels}


@torch.no_grad()
def _accuracy(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """The share of rows whose greatest output is at their class, or at that of their one-hot label."""
    right = [
        (outputs.argmax(-1) == (labels.argmax(-1) if labels.dim() == outputs.dim() else labels)).float()
        for x, label in batches
        for outputs, labels in zip(map(model.eval(), torch.split(x, PIECE)), torch.split(label, PIECE), strict=True)
    ]
    return torch.cat(right).mean().item()
