"""A graph as a program whose learned tensors are parameters of a module."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, final

import numpy as np
import torch
from msgspec import Struct, field
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fedlearn.graphs.checks import values_read
from fedlearn.graphs.graph import ArraySpec, Form, Graph, GraphError
from fedlearn.tasks.torch_graph.arrays import DTYPES, of_constant, to_tensor
from fedlearn.tasks.torch_graph.segments import segments_of
from fedlearn.tasks.torch_graph.steps import PreparedCall, Values, plan


class Tape(Struct):
    """What is kept of a run whose results are to be differentiated."""

    crossing: frozenset[str] = frozenset()
    """Names of values that may cross a cut: these and the derivatives by them have the form in memory that they have
    when they arrive from elsewhere, on which the order of sums depends."""
    uses: list[tuple[str, Tensor]] = field(default_factory=list)
    """The learned tensors that calls read, by name, each in a view of the call's own: so a gradient can be had of each
    use."""


@final
class Program:
    """A checked and measured graph that can be run."""

    def __init__(self, graph: Graph, frozen: Mapping[str, NDArray[Any]]) -> None:
        """Builds the module of a checked graph.

        Raises:
            GraphError: frozen arrays differ from those that the graph names, or a name can't be that of a module.
        """
        missing = [spec.name for spec in graph.frozen if spec.name not in frozen]
        if missing:
            raise GraphError(f"frozen tensors: expected {missing} with the graph, got none; send them along")
        self.module = nn.Module()
        """The module, whose parameters are the learned tensors in order, zeros until loaded; other tensors are
        buffers."""
        for spec in graph.learned:
            _register(self.module, spec, _zeros(spec))
        for spec in graph.frozen:
            _register(self.module, spec, to_tensor(frozen[spec.name], spec))
        names = [name for name, _ in self.module.named_parameters()]
        if names != [spec.name for spec in graph.learned]:
            raise GraphError("learned tensors: expected the order in which a module lists its parameters, got another")
        # Parameters are looked up in their modules, because moving a module to a device may replace them.
        self._learned = [
            (f"{path}.{name}" if path else name, module._parameters, name)
            for path, module in self.module.named_modules()
            for name in module._parameters
        ]
        self._graph, self._plan = graph, plan(graph)
        self._segments: Sequence[Sequence[PreparedCall]] = (self._plan.each_time,)
        self._drawing: list[tuple[PreparedCall, Form]] = []
        self._constants = {constant.array.name: of_constant(constant) for constant in graph.constants}
        self._kept: tuple[torch.device, Values] | None = None

    def fit(self, forms: Sequence[Form], max_bytes: int) -> int:
        """Lets backward passes take at most `max_bytes` where they can; gives the bytes that one takes.

        `forms` are those of the results of all calls, in order. What does not fit is computed twice.
        """
        named = dict(zip(self._graph.results, forms, strict=True))
        self._drawing = [(step, named[step.call.results[0]]) for step in self._plan.each_time if step.draws]
        n_bytes = {name: form.n_bytes for name, form in named.items()}
        self._segments, backward_bytes = segments_of(self._plan.each_time, n_bytes, max_bytes)
        return backward_bytes

    @torch.no_grad()
    def prepare(self) -> Values:
        """The results of calls that never change, computed once for each device that the module is moved to."""
        device = self._device
        if self._kept is None or self._kept[0] != device:
            known = {name: constant.to(device) for name, constant in self._constants.items()}
            known.update(self.module.named_buffers())
            for step in self._plan.once:
                step.run(known, device)
            self._kept = device, known
        return self._kept[1]

    @property
    def draws(self) -> bool:
        """Whether any call draws random numbers."""
        return bool(self._drawing)

    @property
    def drawn_bytes(self) -> int:
        """Bytes of the random numbers of a group."""
        return sum(form.n_bytes for _, form in self._drawing)

    def drawn(self, seed: int) -> Values:
        """The random numbers of the group with this seed as further rows, by the results of the calls that draw them,
        whose names no column has."""
        device = self._device
        return {step.call.results[0]: step.drawn(form, seed).to(device) for step, form in self._drawing}

    def __call__(self, rows: Mapping[str, Tensor]) -> Tensor:
        """The loss, one number, of the rows of one group, [batch_size, ...] of each column, and of what is `drawn` for
        it; what is not among the rows is drawn by the calls.

        Raises:
            GraphError: the rows have other shapes or dtypes than those of the graph.
        """
        (loss,) = self.run(rows, {}).values()
        return loss.reshape(())

    def run(
        self, rows: Mapping[str, Tensor], received: Mapping[str, Tensor], tape: Tape | None = None
    ) -> dict[str, Tensor]:
        """The graph's results, by name, for the rows of one group and the values of the stage before.

        A `tape` is added to where results are to be differentiated.

        Raises:
            GraphError: rows or values have other shapes or dtypes than those of the graph.
        """
        parameters = self._parameters()
        known = {**self.prepare(), **parameters}
        for spec in self._graph.inputs:
            known[spec.name] = _checked(rows, spec)
        for spec in self._graph.received:
            known[spec.name] = _checked(received, spec)
        for step, _ in self._drawing:
            if (drawn := rows.get(step.call.results[0])) is not None:
                known[step.call.results[0]] = drawn
        *again, last = self._segments
        for segment in again:
            run = partial(_after, segment, known, self._device, _views(segment, parameters, tape), tape)
            known = checkpoint(run, use_reentrant=False) if torch.is_grad_enabled() else run()
        known = _after(last, known, self._device, _views(last, parameters, tape), tape)
        return {name: known[name] for name in self._graph.outputs}

    def _parameters(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for full_name, parameters, name in self._learned:
            parameter = parameters[name]
            assert parameter is not None
            found[full_name] = parameter
        return found

    @property
    def _device(self) -> torch.device:
        _, parameters, name = self._learned[0]
        parameter = parameters[name]
        assert parameter is not None
        device: torch.device = parameter.device
        return device


def _views(steps: Sequence[PreparedCall], parameters: Values, tape: Tape | None) -> list[Values]:
    """Views of the learned tensors that each call reads, which the tape has from now on; none without a tape."""
    if tape is None:
        return []
    found: list[Values] = []
    for step in steps:
        read = [name for name in dict.fromkeys(values_read(step.call)) if name in parameters]
        found.append({name: parameters[name].view_as(parameters[name]) for name in read})
        tape.uses.extend(found[-1].items())
    return found


def _after(
    steps: Sequence[PreparedCall], known: Values, device: torch.device, views: Sequence[Values], tape: Tape | None
) -> Values:
    """The values that are known after these calls, which read learned tensors in their `views`; `known` stays as it
    is."""
    values = dict(known)
    for number, step in enumerate(steps):
        if tape is None:
            step.run(values, device)
            continue
        values.update(views[number])
        step.run(values, device)
        for name in step.call.results:
            if name in tape.crossing and name in values:
                values[name] = _Crossing.apply(values[name])  # type: ignore[no-untyped-call]
    return values


class _Crossing(torch.autograd.Function):
    """Gives a value, and the derivative by it, one after another in memory."""

    @staticmethod
    def forward(_: object, value: Tensor) -> Tensor:
        return value.contiguous()

    @staticmethod
    def backward(_: object, derivative: Tensor) -> Tensor:
        return derivative.contiguous()


def _register(module: nn.Module, spec: ArraySpec, tensor: Tensor) -> None:
    """Registers a tensor under its dotted name, and makes the modules that the name needs."""
    *path, name = spec.name.split(".")
    try:
        for part in path:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module.get_submodule(part)
        if isinstance(tensor, nn.Parameter):
            module.register_parameter(name, tensor)
        else:
            module.register_buffer(name, tensor)
    except KeyError as error:
        raise GraphError(f"tensor {spec.name!r}: expected a name that a module could have: {error}") from error


def _zeros(spec: ArraySpec) -> nn.Parameter:
    # numpy's zeros take no memory until they are overwritten.
    return nn.Parameter(torch.from_numpy(np.zeros(spec.shape, dtype=np.float32)))


def _checked(given: Mapping[str, Tensor], spec: ArraySpec) -> Tensor:
    column = given.get(spec.name)
    if column is None:
        raise GraphError(f"rows: expected a column {spec.name!r}, got {sorted(given)}")
    if column.shape != spec.shape or column.dtype is not DTYPES[spec.dtype]:
        raise GraphError(
            f"column {spec.name!r}: expected {spec.dtype} {list(spec.shape)}, "
            f"got {str(column.dtype).removeprefix('torch.')} {list(column.shape)}; "
            "the graph is for one batch size and one form of data"
        )
    return column
