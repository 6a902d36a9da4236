"""The roles of root, stem and leaf in each cluster, found before a run begins."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from msgspec import Struct
from torch import nn

from fedlearn.compat.models import FOLDER, by_place, loaded, save, trainable
from fedlearn.coordination.crews.planning import NEEDS
from fedlearn.graphs.planning.crews import PlannedCrews
from fedlearn.graphs.planning.parts import ModelCosts
from fedlearn.graphs.planning.planner import divide, plan
from fedlearn.storage.node_file import Node, machines_of, read_nodes
from fedlearn.tasks.torch.supervised import Rows, supervised
from fedlearn.tasks.torch_graph.sharing import unpacked

_LOG = logging.getLogger("fedlearn")


class Place(Struct, frozen=True):
    """The number of nodes, and the address at which they find node_0."""

    nodes: int = 3
    host: str = "127.0.0.1"
    port: int = 55562

    @classmethod
    def of_file(cls, path: Path = FOLDER / "node_configs.json") -> "Place":
        """What a file of nodes says, where there is one; nodes at 0.0.0.0 are all on this machine.

        Raises:
            ValueError: the file has another form, or an address has no port.
        """
        if not path.exists():
            return cls()
        nodes = read_nodes(path)
        hosts, ports = zip(*(_split(path, node) for node in nodes), strict=True)
        return cls(len(nodes), hosts[0] if set(hosts) != {"0.0.0.0"} else "127.0.0.1", ports[0])


def _split(path: Path, node: Node) -> tuple[str, int]:
    host, _, port = node.address.rpartition(":")
    if not (host and port.isdigit()):
        raise ValueError(f"{path}: node {node.name}: IP: expected HOST:PORT, got {node.address!r}")
    return host, int(port)


def set_seed(seed: int) -> None:
    """Makes initial weights the same in every process."""
    torch.manual_seed(seed)


def clusterize(
    *,
    model: nn.Module | str | Path,
    example_args: Sequence[torch.Tensor] = (),
    example_kwargs: Mapping[str, torch.Tensor] | None = None,
    nodes: int | str | Path = "node_data/node_configs.json",
) -> PlannedCrews:
    """The clusters that nodes make, each of which holds one replica; their roles are logged.

    With the path of a file of nodes, those that try the most members per second, as `fedlearn plan --nodes` finds them:
    a model that fits into one node is not cut, and is kept beside the file, for `Node`. With a number, one cluster of
    so many equal nodes. The model may be the path of a scripted one.

    Raises:
        PlanError: the nodes can't hold the model.
        ValueError: the module can't be exported.
    """
    model, named = loaded(model), dict(example_kwargs or {})
    if not isinstance(nodes, int) and (problem := save(model, Path(nodes).parent)):
        _LOG.info("%s", problem)
    if isinstance(model, torch.jit.ScriptModule):
        example_args, named = by_place(model, example_args, named), {}
    placed = {f"input_{number}": argument for number, argument in enumerate(example_args)}

    def mean_output(module: nn.Module, rows: Rows) -> torch.Tensor:
        found: torch.Tensor = module(*(rows[name] for name in placed), **{name: rows[name] for name in named})
        return found.float().mean()

    columns = {name: argument.numpy() for name, argument in {**placed, **named}.items()}
    made = trainable(model, *example_args)
    task = supervised(made, mean_output, columns, batch_size=len(next(iter(columns.values()))))
    graph = ModelCosts.of(unpacked(task.as_graph()).graph)
    if isinstance(nodes, int):
        equal = [Node(str(number), "", 1.0, np.inf) for number in range(nodes)]
        found = divide(graph, machines_of(equal), NEEDS)
    else:
        found = plan(graph, machines_of(read_nodes(Path(nodes))), NEEDS)
    for number, crew in enumerate(found.crews):
        for seat in crew.seats:
            held = f"{seat.tensors[0]} to {seat.tensors[-1]}" if seat.tensors else "no tensor"
            _LOG.info("node_%s: cluster %d, %s, %s", seat.machine, number, seat.role, held)
    for name in found.idle:
        _LOG.info("node_%s: idle", name)
    return found
