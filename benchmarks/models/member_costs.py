"""What members of a PyTorch module cost beside inference of the same rows, as it is and when it travels as a graph.

Inference runs all members' rows in one call, unperturbed. Members run as a task runs them, in the way and the pieces
that its own search finds. One thread, alternating rounds, processor time; every ratio is the median within a round.
Losses are compared first: of the graph with the module, and of members at once with members one by one.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from benchmarks.measure import TURN_S, Spread, alternate, parser_of, print_tables, ratio, spread, use_processors
from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import member_noise
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.task import Batch, flat_weights

try:
    import torch
    from torch import Tensor
except ImportError:
    sys.exit("member_costs.py needs PyTorch: pip install 'fedlearn[torch]'")

from benchmarks.models.networks import LAYERS, Network
from fedlearn.tasks.torch.members.noise import as_tensors, of_members
from fedlearn.tasks.torch.members.sequential import sequential
from fedlearn.tasks.torch.module_task import ModuleTask
from fedlearn.tasks.torch.supervised import supervised
from fedlearn.tasks.torch_graph.export.export import export
from fedlearn.tasks.torch_graph.graph_task import GraphTask
from fedlearn.tasks.torch_graph.program import Program

ENVIRONMENT = {
    # glibc keeps freed memory: fresh pages for every temporary would cost PyTorch a third of its speed.
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    # Threads that wait for their next product would otherwise spin through the next contestant's turn.
    "OMP_WAIT_POLICY": "PASSIVE",
    "OPENBLAS_THREAD_TIMEOUT": "4",
}

WARM_UP = 20
"""Steps in which a task searches for the size of its pieces."""

COMPARED = 4
"""Members whose losses are compared with those of members one by one."""


class Result(msgspec.Struct, frozen=True):
    """What was found for one network."""

    network: str
    parameters: int
    calls: int
    """Calls of operators in the graph."""
    inference_us: Spread
    """Inference of one member's rows, as one of all members'."""
    share_of_inference: Spread
    """Speed of members, as a share of that of inference."""
    graph: Spread
    """Time of inference of one group's rows by the graph, for that by the module."""
    graph_members: Spread
    """Time of members of the graph, for that of members of the module."""
    ways: tuple[str, str]


class Tasks:
    """A network as two tasks, the module and its graph, with members around the same weights."""

    def __init__(self, network: Network, options: argparse.Namespace) -> None:
        self.loss, self.rows, self.n_members = network.loss, network.rows, options.members
        self._columns = {name: column.numpy() for name, column in network.rows.items()}
        n_rows = len(next(iter(self._columns.values())))
        self.module = supervised(network.module.eval(), network.loss, self._columns, batch_size=n_rows)
        self.exported = export(self.module.model, network.loss, network.rows, self.module.parameters)
        graph, frozen = self.exported.graph, self.exported.frozen
        self.graph = GraphTask(graph, frozen, start=self.module.tensors, data=self._columns)
        self._program = Program(graph, frozen)
        for parameter, start in zip(self._program.module.parameters(), self.module.parameters.values(), strict=True):
            parameter.data = start.detach().clone()
        self._weights = flat_weights(self.module.tensors)
        trials = Trials(0, Perturbation(0.01, options.rank), options.members, 0, options.members)
        self._noise = member_noise(self.module.layout, trials, seed=1)
        for task in (self.module, self.graph):
            task.use("cpu", threads=1)

    @torch.inference_mode()
    def infer(self, n_members: int = 1) -> Tensor:
        """The module's loss on the rows of so many members."""
        many = {name: column.repeat(n_members, *(1,) * (column.dim() - 1)) for name, column in self.rows.items()}
        return self.loss(self.module.model, many)

    @torch.no_grad()
    def infer_by_graph(self) -> Tensor:
        """The graph's loss on the rows of one member."""
        return self._program(self.rows)

    def losses(self, task: ModuleTask) -> Float32Array:
        """The losses of all members."""
        members = task.members(self._weights, self._noise, n_groups=1)
        batch = Batch({name: column[None] for name, column in self._columns.items()}, (1,))
        return np.asarray(task.losses(members, batch))

    @torch.inference_mode()
    def losses_one_by_one(self) -> Float32Array:
        """The losses of the first members."""
        some = of_members(as_tensors(self._noise, "cpu"), 0, COMPARED)
        parameters, weights = list(self.module.parameters.values()), self.module.load(self._weights)
        infer = partial(self.loss, self.module.model, self.rows)
        return torch.stack(sequential(infer, parameters, weights, some)).numpy()

    def contestants(self) -> dict[str, Callable[[], Tensor | Float32Array]]:
        """The calls that are measured."""
        return {
            "inference": partial(self.infer, self.n_members),
            "module": self.infer,
            "graph": self.infer_by_graph,
            "module, members": partial(self.losses, self.module),
            "graph, members": partial(self.losses, self.graph),
        }


def measure(name: str, options: argparse.Namespace) -> Result:
    """The figures of one network.

    Raises:
        RuntimeError: losses differ that should be equal.
    """
    torch.manual_seed(0)
    tasks = Tasks(LAYERS[name](), options)
    contestants = tasks.contestants()
    for _ in range(WARM_UP):
        losses = {way: np.asarray(run()) for way, run in contestants.items()}
    check(name, losses["graph"], losses["module"])
    check(name, losses["graph, members"], losses["module, members"])
    check(name, losses["module, members"][:COMPARED], tasks.losses_one_by_one())
    seconds = alternate(contestants, rounds=options.rounds, turn_s=TURN_S, clock=time.process_time)
    return Result(
        network=name,
        parameters=tasks.module.layout.size,
        calls=len(tasks.exported.graph.calls),
        inference_us=spread([1e6 * s / options.members for s in seconds["inference"]]),
        share_of_inference=ratio(seconds["inference"], seconds["module, members"]),
        graph=ratio(seconds["graph"], seconds["module"]),
        graph_members=ratio(seconds["graph, members"], seconds["module, members"]),
        ways=(tasks.module.report().splitlines()[0], tasks.graph.report().splitlines()[0]),
    )


def check(name: str, losses: Float32Array, expected: Float32Array) -> None:
    """Compares losses.

    Raises:
        RuntimeError: they differ.
    """
    if not np.allclose(losses, expected, rtol=1e-5, atol=2e-6):
        raise RuntimeError(f"{name}: expected losses like {expected}, got {losses}")


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--networks", nargs="+", choices=LAYERS, default=list(LAYERS), metavar="NAME", help="which")
    parser.add_argument("--members", type=int, default=64, metavar="N", help="members (default: 64)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="alternating rounds (default: 7)")
    parser.add_argument("--rank", type=int, default=1, metavar="N", help="rank of the noise (default: 1)")
    options = parser.parse_args()
    use_processors(1, **ENVIRONMENT)
    torch.set_num_threads(1)
    facts = {name: getattr(options, name) for name in ("rounds", "members", "rank")}
    results = [measure(name, options) for name in options.networks]
    print_tables(
        "member_costs", as_json=options.json, facts={**facts, "PyTorch": str(torch.__version__)}, results=results
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
