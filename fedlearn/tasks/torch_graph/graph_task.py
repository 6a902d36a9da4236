"""The task of a graph: supervised learning of a model that came as data."""

from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedlearn.es.layout import Float32Array
from fedlearn.graphs.checks import DEFAULT_LIMITS, Limits
from fedlearn.graphs.graph import Graph, GraphError
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.limits import MEMBERS_AT_LEAST
from fedlearn.tasks.task import Batch, LossGradients, Members, NoGradientError, Setting
from fedlearn.tasks.torch.members.execution_plans import N_TRIED
from fedlearn.tasks.torch.members.members import TorchMembers
from fedlearn.tasks.torch.module_task import ModuleTask
from fedlearn.tasks.torch_graph.arrays import to_tensor
from fedlearn.tasks.torch_graph.export.refusals import first_line
from fedlearn.tasks.torch_graph.measure import GraphSize, measure_whole
from fedlearn.tasks.torch_graph.program import Program

GRADIENT_MEMBERS = MEMBERS_AT_LEAST // 2
"""Number of members whose memory a backward pass may take, so that half is left for weights, rows and sums."""


@final
class GraphTask(ModuleTask):
    """A task whose loss is a graph, for which no code of the user's is needed."""

    kind: ClassVar[str] = "graph"

    def __init__(
        self,
        graph: Graph,
        frozen: Mapping[str, NDArray[Any]],
        *,
        start: Mapping[str, Float32Array] | None = None,
        data: Columns | None = None,
        scales: Mapping[str, float] | None = None,
        reads: Mapping[str, str] | None = None,
        hidden: Mapping[str, int] | None = None,
        settings: Mapping[str, Setting] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """`start` are the initial weights; without them, as for a volunteer that is sent weights, they are zeros.

        Raises:
            GraphError: the graph is not well formed, asks for more than `limits`, or has other arrays than these.
        """
        self.graph = graph
        self.extent: GraphSize = measure_whole(graph, limits)
        self.batch_size = _batch_size(graph)
        self.data, self.reads = data or {}, reads or {}
        if self.data:
            _check_columns(graph, self.data)
        self._program = Program(graph, frozen)
        self._backward_bytes = self._program.fit(self.extent.forms, GRADIENT_MEMBERS * limits.max_bytes)
        if start is not None:
            _load(self._program.module, graph, start)
        super().__init__(self._program.module, scales=scales, settings=settings, hidden=hidden or {})
        # Limits are for one member, and at least N_TRIED members run at once.
        self._plans.most_at_once = max(N_TRIED * limits.max_bytes // self.extent.peak_bytes, N_TRIED)

    def losses(self, members: Members, batch: Batch) -> Float32Array:
        """The loss of each member.

        Raises:
            GraphError: rows have other shapes than the graph's, or numbers that it cannot take, such as a token beyond
                its vocabulary.
        """
        assert isinstance(members, TorchMembers)
        with self.computing():
            # This check is outside of the members' function, in which a value would be that of one member.
            self._program.prepare()
            try:
                losses = members(self._program, dict(batch.rows), seeds=batch.seeds if self._program.draws else ())
                return np.asarray(losses.cpu(), dtype=np.float32)
            except (RuntimeError, IndexError) as error:
                raise _unfit(error) from error

    @property
    def backward_bytes(self) -> int:
        return self._backward_bytes

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        self._program.prepare()
        try:
            drawn = self._program.drawn if self._program.draws else None
            return self.gradients_of(self._program, weights, batch, drawn=drawn, draws=False)
        except (RuntimeError, IndexError, NoGradientError) as error:
            raise _unfit(error) from error


def _unfit(error: Exception) -> GraphError:
    return GraphError(
        f"graph: expected rows that it can run on: {first_line(str(error))}; data and graph must be of one run"
    )


def _batch_size(graph: Graph) -> int:
    sizes = {array.shape[0] if array.shape else 0 for array in graph.inputs}
    if len(sizes) != 1 or 0 in sizes:
        raise GraphError(f"graph: expected columns with one number of rows above 0, got {sorted(sizes)}")
    return sizes.pop()


def _check_columns(graph: Graph, data: Columns) -> None:
    for array in graph.inputs:
        column = data.get(array.name)
        got = "none" if column is None else f"rows of {list(column.shape[1:])}"
        if column is None or column.shape[1:] != array.shape[1:]:
            raise GraphError(f"data: expected a column {array.name!r} with rows of {list(array.shape[1:])}, got {got}")


def _load(module: nn.Module, graph: Graph, start: Mapping[str, Float32Array]) -> None:
    missing = [array.name for array in graph.learned if array.name not in start]
    if missing:
        raise GraphError(f"start: expected {missing} as the graph names them, got none")
    with torch.no_grad():
        for parameter, array in zip(module.parameters(), graph.learned, strict=True):
            parameter.copy_(to_tensor(start[array.name], array))
