"""A module trained on several providers: one node in each, of which node_0 serves the run."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import torch
from torch import Tensor

from fedlearn.compat.models import Brought, loaded
from fedlearn.compat.optimizers import LrScheduler, follows_figures, settings_of
from fedlearn.compat.roles import Place
from fedlearn.tasks.task import Setting

Criterion = Callable[[Tensor, Any], Tensor]
Labels = Tensor | Iterable[Any]

NO_EFFECT = {
    "reduce_factor": "all nodes take every step together",
    "compression": "what is sent after a step is a byte a number in any case",
    "average_optim": "the optimizer's state is the same on all nodes",
    "device": "nodes compute on processors",
    "lr_scheduler": "a rate that follows what is measured stays as it is",
}
"""Arguments of a node that other systems have and that change nothing here, and why."""


@final
class ProviderNode:
    """One provider, whose number is in its name: node_0 serves, the others join it.

    Each node holds the whole model, and they share the rows of each batch. With `seats` so many nodes hold one model
    between them, each a part of it. The model is a module or the path of a scripted one, and without any
    the one of which `clusterize` was told. How many nodes there are, and where node_0 is, may stand in
    `node_data/node_configs.json`. `labels` and `test_labels` are tensors, or loaders, whose rows have them behind the
    inputs. `settings` are those of a run.

    Raises:
        ValueError: the optimizer, or an argument of it, is not known here.
    """

    def __init__(
        self,
        *,
        name: str,
        model: Brought = None,
        criterion: Criterion | None = None,
        labels: Labels | None = None,
        test_labels: Labels | None = None,
        optimizer: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_params: Mapping[str, Any] | None = None,
        lr_scheduler: LrScheduler | None = None,
        lr_scheduler_params: Mapping[str, Any] | None = None,
        update_frequency: int = 1,
        reduce_factor: int | None = None,
        compression: bool | None = None,
        average_optim: bool | None = None,
        device: torch.device | str = "cpu",
        nodes: int = 0,
        seats: int = 0,
        host: str = "",
        port: int = 0,
        **settings: Setting,
    ) -> None:
        if update_frequency < 1:
            raise ValueError(f"update_frequency: expected 1 batch or more, got {update_frequency}")
        self.name, self.number = name, int(name.removeprefix("node_"))
        place = Place.of_file()
        self.nodes, self.host, self.port = nodes or place.nodes, host or place.host, port or place.port
        self.model = loaded(model) if self.number == 0 else None
        self.criterion, self.labels, self.test_labels = criterion, labels, test_labels
        self.update_frequency, self.seats = update_frequency, seats
        self.settings = {**settings_of(optimizer, optimizer_params or {}), **settings}
        self.lr_scheduler = None if follows_figures(lr_scheduler) else lr_scheduler
        self.lr_scheduler_params = lr_scheduler_params or {}
        given = {
            "reduce_factor": reduce_factor,
            "compression": compression,
            "average_optim": average_optim,
            "device": None if str(device) == "cpu" else device,
            "lr_scheduler": lr_scheduler if follows_figures(lr_scheduler) else None,
        }
        if notes := [f"{key}: {NO_EFFECT[key]}" for key, value in given.items() if value is not None]:
            warnings.warn(f"taken, and without effect here: {'; '.join(notes)}", stacklevel=2)
