"""Exports a module and its loss as a graph, with the arrays that belong to it."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray
from torch import Tensor, nn

from fedlearn.es.layout import Float32Array
from fedlearn.graphs.checks import values_read
from fedlearn.graphs.graph import ArraySpec, Graph, GraphError
from fedlearn.tasks.task import NoGradientError
from fedlearn.tasks.torch.dropout import PortableDraws
from fedlearn.tasks.torch.gradients import Batching, called, loss_gradients
from fedlearn.tasks.torch.seeds import seeded, states_outside_torch
from fedlearn.tasks.torch_graph.arrays import spec_of, to_array, to_constant
from fedlearn.tasks.torch_graph.export.capture import Loss, capture
from fedlearn.tasks.torch_graph.export.given import given_to
from fedlearn.tasks.torch_graph.export.refusals import REMEDY
from fedlearn.tasks.torch_graph.export.stand_ins import drawing_alike
from fedlearn.tasks.torch_graph.export.translate import Translation
from fedlearn.tasks.torch_graph.measure import measure_whole
from fedlearn.tasks.torch_graph.program import Program

MAX_CONSTANT_BYTES = 256
"""The most bytes of a tensor in the graph itself, such as the frequencies of a rotary embedding."""

_TOLERANCE = 1e-5
"""The relative tolerance, a tenth of which is the absolute one; kernels may sum in another order if tensors lie
otherwise in memory."""

_GRADIENT_TOLERANCE = 0.01
"""The greatest difference of two gradients, as a share of the length of one."""


class ExportedGraph(Struct, frozen=True, eq=False):
    """The graph of a model and its loss, without the initial weights."""

    graph: Graph
    frozen: Mapping[str, NDArray[Any]]
    """The graph's frozen tensors, by name."""


def export(model: nn.Module, loss: Loss, rows: Mapping[str, Tensor], learned: Mapping[str, Tensor]) -> ExportedGraph:
    """The graph of a model's loss on the rows of one group.

    `rows` are those of any group, [batch_size, ...] of each column as in trials. `learned` are parameters of the model,
    by name.

    Raises:
        GraphError: the loss is not a function of rows and tensors alone, or not one that a graph can express.
    """
    program = capture(model, loss, rows)
    names, tensors = given_to(program, model, rows, learned)
    calls, output = Translation(program.graph, names, learned).calls()
    read = {name for call in calls for name in values_read(call)}
    frozen: list[ArraySpec] = []
    constants: list[ArraySpec] = []
    for name, tensor in tensors.items():
        if name in read:
            spec = spec_of(name, tensor)
            (constants if spec.n_bytes <= MAX_CONSTANT_BYTES else frozen).append(spec)
    graph = Graph(
        inputs=tuple(spec_of(name, column) for name, column in rows.items()),
        learned=tuple(spec_of(name, tensor) for name, tensor in learned.items()),
        frozen=tuple(frozen),
        constants=tuple(to_constant(spec, tensors[spec.name]) for spec in constants),
        calls=calls,
        outputs=(output,),
    )
    graph = replace(graph, forms=measure_whole(graph).forms)
    exported = ExportedGraph(graph, {spec.name: to_array(tensors[spec.name]) for spec in frozen})
    _compare(exported, learned, partial(loss, model), rows)
    return exported


def _compare(
    exported: ExportedGraph,
    learned: Mapping[str, Tensor],
    loss: Callable[[dict[str, Tensor]], Any],
    rows: Mapping[str, Tensor],
) -> None:
    """Refuses a loss that depends on more than rows and tensors, such as a counter, a clock or random numbers, and one
    whose gradient is another as a graph."""
    program = Program(exported.graph, exported.frozen)
    for parameter, start in zip(program.module.parameters(), learned.values(), strict=True):
        parameter.data = start.detach()
    device = next(iter(learned.values())).device
    program.module.to(device)

    def seeded_number(function: Callable[[dict[str, Tensor]], Any]) -> float:
        with seeded(0, device), PortableDraws(), drawing_alike():
            before = states_outside_torch()
            found = called(function, dict(rows))
            if states_outside_torch() != before:
                raise GraphError(
                    "loss: expected random numbers of PyTorch's generator alone, got some of random or numpy.random, "
                    f"which a graph would draw once for all; draw by torch.rand, randn or randint, or, {REMEDY}"
                )
        return float(found.detach() if isinstance(found, Tensor) else found)

    def gradient(function: Callable[[Any], Any], parameters: Iterable[Tensor]) -> Float32Array | None:
        group = {name: column[None] for name, column in rows.items()}
        try:
            with PortableDraws(), drawing_alike():
                found = loss_gradients(function, [*parameters], group, 1, seed=0, batching=Batching(), now=lambda: 0.0)
        except NoGradientError:
            return None
        return found.total

    expected, again, got = seeded_number(loss), seeded_number(loss), seeded_number(program)
    for what, value in (("the second time", again), ("as a graph", got)):
        if not torch.isclose(torch.tensor(expected), torch.tensor(value), _TOLERANCE, _TOLERANCE / 10, equal_nan=True):
            raise GraphError(
                f"loss: expected {expected} of the same rows and weights, got {value} {what}; "
                f"it depends on something else, such as earlier calls or random numbers of its own: {REMEDY}"
            )
    steepest, found = gradient(loss, learned.values()), gradient(program, program.module.parameters())
    if steepest is None:  # by losses it learns all the same
        return
    if found is None or np.linalg.norm(found - steepest) > _GRADIENT_TOLERANCE * np.linalg.norm(steepest):
        raise GraphError(
            "loss: expected the gradient that the module has, got another as a graph; what has a backward pass of its "
            f"own, such as torch.autograd.Function or a hook, does not travel: {REMEDY}"
        )
