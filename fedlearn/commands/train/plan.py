"""`fedlearn plan`: who would hold which part of a model."""

import argparse
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from fedlearn.coordination.crews.planning import NEEDS
from fedlearn.graphs.graph import GraphError
from fedlearn.graphs.planning.crews import PlannedCrew, PlannedCrews, PlannedSeat
from fedlearn.graphs.planning.fitting import Cutting, Cuttings, fitting
from fedlearn.graphs.planning.parts import ModelCosts
from fedlearn.graphs.planning.planner import divide, plan
from fedlearn.storage.node_file import GFLOPS_PER_GB, Node, machines_of, read_nodes
from fedlearn.storage.task_file import load_task
from fedlearn.tasks.torch_graph.sharing import unpacked
from fedlearn.terminal import counted, format_count, printable
from fedlearn.terminal.figures import format_bytes

NO_LIMIT_MBPS = math.inf

GREEDY = "by a greedy rule: as few of the largest nodes as can hold the model; other clusters may be faster"
"""What people should know of a plan of crews."""


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn plan`."""
    parser.add_argument("task", metavar="TASK", help="FILE.py with a PyTorch task called task, or FILE.py:NAME")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument(
        "--nodes", metavar="FILE", help="JSON of machines, with RAM in GB, bandwidth in Mbps and, if measured, GFLOPS"
    )
    given.add_argument(
        "--memory", metavar="GB,GB,...", help="memory of the machines of one crew, in order: its parts are as large"
    )
    parser.add_argument("--json", action="store_true", help="the plan as JSON")


def plan_command(options: argparse.Namespace) -> int:
    """`fedlearn plan TASK`: a line a machine, by clusters."""
    nodes = read_nodes(Path(options.nodes)) if options.nodes is not None else _nodes_of(options.memory)
    sharing = plan if options.nodes is not None else divide
    cutting, divided = fitting(sharing, _cuttings_of(options.task), machines_of(nodes), NEEDS)
    if options.json:
        found = _as_json(cutting, divided, nodes)
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return 0
    for line in _lines(cutting, divided, nodes):
        print(printable(line))
    if options.nodes is not None:
        print(GREEDY)
    return 0


def _cuttings_of(text: str) -> Cuttings:
    named = load_task(f"{text}:task" if text.endswith(".py") else text)
    try:
        return Cuttings(unpacked(named.task.as_graph()).graph)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"plan: expected PyTorch, {error.name} is missing; install it: pip install 'fedlearn[torch]'"
        ) from error
    except GraphError as error:
        raise ValueError(f"plan: expected a model that can be cut: {error}") from error
    except ValueError as error:
        raise ValueError(
            f"plan: expected a task of a PyTorch module, which can be cut, got another: {error}"
        ) from error


def _nodes_of(text: str) -> list[Node]:
    """The machines of one crew, of which nothing is known but the memory."""
    try:
        sizes = [float(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or not all(0 < size < math.inf for size in sizes):
        raise ValueError(f"--memory: expected numbers of GB such as 2,1, got {text!r}")
    return [Node(str(number), "", size, NO_LIMIT_MBPS) for number, size in enumerate(sizes)]


def _lines(cutting: Cutting, divided: PlannedCrews, nodes: Sequence[Node]) -> list[str]:
    model, by_name = cutting.model, {node.name: node for node in nodes}
    lines = [
        f"{counted(sum(model.learned.values()), 'parameter')} in {counted(len(model.pieces), 'piece')}; "
        f"{format_count(divided.members_per_s)} members/s in {counted(len(divided.crews), 'cluster')}"
    ]
    if cutting.n_shards > 1:
        lines.append(
            f"the rows of the vocabulary are cut into {cutting.n_shards} shards: no division of whole tensors fits"
        )
    for number, crew in enumerate(divided.crews):
        lines.append(f"cluster {number}: {counted(len(crew.seats), 'node')}, {crew.seconds:.3g} s a member")
        lines += [_line(model, seat, by_name[seat.machine]) for seat in crew.seats]
        lines += [f"  cut after {before}, before {after}" for before, after in _cuts(crew)]
    lines += [f"idle: node {name}" for name in divided.idle]
    if any(node.gflops is None for node in nodes):
        whose = "the nodes'" if all(node.gflops is None for node in nodes) else "some nodes'"
        how = f"{GFLOPS_PER_GB:g} GFLOPS a GB of memory" if whose == "the nodes'" else "in proportion to memory"
        lines.append(f"{whose} speed was not measured, and is taken as {how}; seconds are as good as that")
    return lines


def _line(model: ModelCosts, seat: PlannedSeat, node: Node) -> str:
    place = f" ({node.address})" if node.address else ""
    sent = f", sends {format_bytes(seat.sent_bytes)} a member" if seat.sent_bytes else ""
    return (
        f"  node {seat.machine}{place} {seat.role}: {seat.tensors[0]} to {seat.tensors[-1]}, "
        f"{counted(_parameters(model, seat), 'parameter')}, {format_bytes(seat.need_bytes)} of {node.ram_gb:g} GB"
        f"{sent}, {seat.seconds:.3g} s"
    )


def _cuts(crew: PlannedCrew) -> list[tuple[str, str]]:
    """The tensors before and after each cut."""
    return [(before.tensors[-1], after.tensors[0]) for before, after in pairwise(crew.seats)]


def _as_json(cutting: Cutting, divided: PlannedCrews, nodes: Sequence[Node]) -> dict[str, Any]:
    model, by_name = cutting.model, {node.name: node for node in nodes}
    clusters = [
        {
            "seconds": crew.seconds,
            "nodes": [
                {
                    "node": seat.machine,
                    "IP": by_name[seat.machine].address,
                    "role": seat.role,
                    "tensors": seat.tensors,
                    "parameters": _parameters(model, seat),
                    "memory_bytes": seat.need_bytes,
                    "received_bytes": seat.received_bytes,
                    "sent_bytes": seat.sent_bytes,
                    "seconds": seat.seconds,
                }
                for seat in crew.seats
            ],
            "cuts": [{"after": before, "before": after} for before, after in _cuts(crew)],
        }
        for crew in divided.crews
    ]
    return {
        "shards": cutting.n_shards,
        "members_per_s": divided.members_per_s,
        "clusters": clusters,
        "idle": divided.idle,
    }


def _parameters(model: ModelCosts, seat: PlannedSeat) -> int:
    return sum(model.learned.get(name, 0) for name in seat.tensors)
