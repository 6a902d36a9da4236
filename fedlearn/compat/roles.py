"""The roles of root, stem and leaf in each cluster, found before a run begins."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedlearn.graphs.planning.crews import PlannedCrews
from fedlearn.graphs.planning.parts import ModelCosts, Needs
from fedlearn.graphs.planning.planner import divide, plan
from fedlearn.storage.node_file import Node, machines_of, read_nodes
from fedlearn.tasks.limits import MEMBERS_AT_LEAST, PARAMETER_BYTES
from fedlearn.tasks.torch.supervised import Rows, supervised
from fedlearn.tasks.torch_graph.sharing import unpacked

_LOG = logging.getLogger("fedlearn")
_NEEDS = Needs(PARAMETER_BYTES, MEMBERS_AT_LEAST)


def set_seed(seed: int) -> None:
    """Makes initial weights the same in every process."""
    torch.manual_seed(seed)


def clusterize(
    *,
    model: nn.Module,
    example_args: Sequence[torch.Tensor] = (),
    example_kwargs: Mapping[str, torch.Tensor] | None = None,
    nodes: int | str | Path = "node_data/node_configs.json",
) -> PlannedCrews:
    """The clusters that nodes make, each of which holds one replica; their roles are logged.

    With the path of a file of nodes, those that try the most members per second, as `fedlearn plan --nodes` finds them:
    a model that fits into one node is not cut. With a number, one cluster of so many equal nodes.

    Raises:
        PlanError: the nodes can't hold the model.
        ValueError: the module can't be exported.
    """
    named = dict(example_kwargs or {})
    placed = {f"input_{number}": argument for number, argument in enumerate(example_args)}

    def mean_output(module: nn.Module, rows: Rows) -> torch.Tensor:
        found: torch.Tensor = module(*(rows[name] for name in placed), **{name: rows[name] for name in named})
        return found.float().mean()

    columns = {name: argument.numpy() for name, argument in {**placed, **named}.items()}
    task = supervised(lambda: model, mean_output, columns, batch_size=len(next(iter(columns.values()))))
    graph = ModelCosts.of(unpacked(task.as_graph()).graph)
    if isinstance(nodes, int):
        equal = [Node(str(number), "", 1.0, np.inf) for number in range(nodes)]
        found = divide(graph, machines_of(equal), _NEEDS)
    else:
        found = plan(graph, machines_of(read_nodes(Path(nodes))), _NEEDS)
    for number, crew in enumerate(found.crews):
        for seat in crew.seats:
            held = f"{seat.tensors[0]} to {seat.tensors[-1]}" if seat.tensors else "no tensor"
            _LOG.info("node_%s: cluster %d, %s, %s", seat.machine, number, seat.role, held)
    for name in found.idle:
        _LOG.info("node_%s: idle", name)
    return found
