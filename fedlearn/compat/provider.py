"""A trainer on each provider: the first serves, and all of them learn one module by its gradients."""

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, final

import torch
from safetensors.torch import save_model
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fedlearn.compat.crew import await_seat, serve
from fedlearn.compat.optimizers import schedule_of, settings_of
from fedlearn.compat.sharing import SharedBatch
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.task import Setting
from fedlearn.tasks.torch.supervised import Rows, supervised

_LOG = logging.getLogger("fedlearn")

Criterion = Callable[[Tensor, Tensor], Tensor]
LrScheduler = type[torch.optim.lr_scheduler.LRScheduler]

NO_EFFECT = {
    "reduce_factor": "all nodes take every step together",
    "compression": "what is sent after a step is a byte a number in any case",
    "average_optim": "the optimizer's state is the same on all nodes",
}
"""Arguments of a node that other systems have and that change nothing here, and why."""


@final
class ProviderNode:
    """One provider, whose number is in its name: node_0 serves, the others join it.

    Each node holds the whole model, and they share the rows of each batch. With `seats` so many nodes hold one model
    between them, and training is forward only. `settings` are those of a run.

    Raises:
        ValueError: the optimizer, or an argument of it, is not known here.
    """

    def __init__(
        self,
        *,
        name: str,
        model: nn.Module,
        criterion: Criterion,
        labels: Tensor,
        test_labels: Tensor,
        optimizer: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_params: Mapping[str, Any] | None = None,
        lr_scheduler: LrScheduler | None = None,
        lr_scheduler_params: Mapping[str, Any] | None = None,
        update_frequency: int = 1,
        reduce_factor: int | None = None,
        compression: bool | None = None,
        average_optim: bool | None = None,
        nodes: int = 3,
        seats: int = 0,
        host: str = "127.0.0.1",
        port: int = 55562,
        **settings: Setting,
    ) -> None:
        if update_frequency < 1:
            raise ValueError(f"update_frequency: expected 1 batch or more, got {update_frequency}")
        self.name, self.number = name, int(name.removeprefix("node_"))
        self.model, self.criterion = model, criterion
        self.labels, self.test_labels = labels, test_labels
        self.update_frequency, self.nodes, self.seats = update_frequency, nodes, seats
        self.host, self.port = host, port
        given = {"reduce_factor": reduce_factor, "compression": compression, "average_optim": average_optim}
        notes = [f"{key}: {NO_EFFECT[key]}" for key, value in given.items() if value is not None]
        schedule, note = schedule_of(lr_scheduler, lr_scheduler_params or {})
        if notes := [*notes, *note]:
            warnings.warn(f"taken, and without effect here: {'; '.join(notes)}", stacklevel=2)
        self.settings = {**settings_of(optimizer, optimizer_params or {}), **schedule, **settings}


class ProviderTrainer:
    """Trains for some epochs, each a pass over the rows; `on_epoch` is for subclasses.

    `train_loader` and `val_loader` are read once: their data sets and batch size count, the order of rows is the run's.
    After each `val_freq` epochs the model is looked at, and `losses.txt` and `val_accuracies.txt` in the folder get a
    line. With `save` the trained model is written as `fused.safetensors`.
    """

    def __init__(
        self,
        *,
        node: ProviderNode,
        epochs: int,
        train_loader: DataLoader[Any],
        val_loader: DataLoader[Any],
        val_freq: int = 1,
        save: bool = False,
        folder: str | Path = ".",
    ) -> None:
        self.node, self.epochs, self.val_freq, self.save = node, epochs, val_freq, save
        self.folder = Path(folder)
        self.rows = self.columns(train_loader, node.labels)
        # Nodes share a batch by its parts; seats hold the model together, and see it as it is.
        n_machines = 1 if node.seats else node.nodes
        self.batch = SharedBatch.of(train_loader.batch_size or 1, n_machines, n_batches=node.update_frequency)
        self.steps_per_epoch = self.batch.steps_of(len(node.labels))
        self.task = supervised(
            node.model,
            lambda model, rows: node.criterion(model(rows["x"]), rows["label"]),
            self.rows,
            held_out=self.columns(val_loader, node.test_labels),
            batch_size=self.batch.part_size,
            metrics={"accuracy": _accuracy},
        )
        self.accuracy: float | None = None

    @staticmethod
    def columns(loader: DataLoader[Any], labels: Tensor) -> dict[str, Tensor]:
        """The rows of a loader's data set, in its order, with their labels."""
        rows: Any = loader.dataset
        return {"x": torch.stack([rows[row][0] for row in range(len(labels))]), "label": labels}

    def train(self) -> int:
        """Trains until all epochs are over, or the node that serves has ended; gives the exit code."""
        node = self.node
        if node.number > 0:
            return await_seat(node.host, node.port, name=node.name)
        _LOG.info(
            "%s: %s", node.name, f"{node.seats} nodes hold one model between them, so that training is forward only"
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
            callbacks=(),
            feed=None,
            **{**({"seats": node.seats} if node.seats else self.batch.settings), **node.settings},
        )
        self.accuracy = trained.figures["accuracy"]
        node.model.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in trained.weights.items()})
        if self.save:
            save_model(node.model, str(self.folder / "fused.safetensors"))
        return 0

    def on_epoch(self, epoch: int, loss: float, accuracy: float) -> None:
        """Called on node_0 after each `val_freq` epochs, with the loss of the last step and the validation accuracy."""
        _LOG.info("epoch %d: loss %.4f, validation accuracy %.4f", epoch, loss, accuracy)
        for name, figure in (("losses", loss), ("val_accuracies", accuracy)):
            with (self.folder / f"{name}.txt").open("a" if epoch > self.val_freq else "w") as file:
                file.write(f"{figure}\n")

    @torch.no_grad()
    def evaluate(self, loader: Iterable[tuple[Tensor, Tensor]] | None = None) -> float | None:
        """The accuracy of the trained model, on other rows if they are given; None on nodes that serve nothing."""
        if loader is None or self.accuracy is None:
            return self.accuracy
        found = [(self.pred(x).argmax(-1) == label).float() for x, label in loader]
        return torch.cat(found).mean().item()

    @torch.no_grad()
    def pred(self, x: Tensor) -> Tensor:
        """The output of the node's model, which on node_0 is the trained one once `train` has ended."""
        found: Tensor = self.node.model(x)
        return found

    def _looked(
        self, step: int, loss: float, figures: Mapping[str, float], weights: Mapping[str, Float32Array]
    ) -> None:
        del weights
        self.on_epoch(step // self.steps_per_epoch, loss, figures["accuracy"])


def _accuracy(model: nn.Module, rows: Rows) -> Tensor:
    found: Tensor = (model(rows["x"]).argmax(-1) == rows["label"]).to(torch.float32).mean()
    return found
