"""Measures the memory of a graph before any of it is allocated, by a run on tensors that only have a shape.

Each call is made on PyTorch's `meta` device, and its memory is compared with the limits before the next call.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fedlearn.graphs.checks import DEFAULT_LIMITS, Limits, check, in_words
from fedlearn.graphs.graph import Form, Graph, GraphError, GraphTooLargeError
from fedlearn.tasks.torch.members.without_compiler import without_compiler
from fedlearn.tasks.torch_graph.arrays import DTYPES, NAMES
from fedlearn.tasks.torch_graph.export.refusals import first_line
from fedlearn.tasks.torch_graph.recurrent import GATES, refuse_other_shapes
from fedlearn.tasks.torch_graph.steps import PreparedCall, plan

_META = torch.device("meta")


class GraphSize(Struct, frozen=True):
    """The memory and the operations of a graph."""

    tensor_bytes: int
    """Bytes of rows, learned and frozen tensors, and constants."""
    peak_bytes: int
    """The most bytes that are alive at one time while one member runs, including `tensor_bytes`."""
    n_kernels: int
    """Number of operations that PyTorch runs."""
    forms: tuple[Form, ...]
    """The forms of the results of all calls, in order."""


@without_compiler()
def measure(graph: Graph, limits: Limits = DEFAULT_LIMITS) -> GraphSize:
    """Checks and measures the whole graph, without allocating memory of the sizes that it names.

    The figures do not include what a kernel allocates for itself while it runs.

    Raises:
        GraphTooLargeError: it asks for more memory than it is allowed.
        GraphError: it is not well formed, a call does not fit its arguments, it has too many calls or operations, or
            its results are of other forms than it says.
    """
    check(graph, limits)
    values = {array.name: torch.empty(array.shape, dtype=DTYPES[array.dtype], device=_META) for array in graph.given}
    tensor_bytes = peak_bytes = sum(array.n_bytes for array in graph.given)
    meter = _Meter(limits)
    for value in values.values():
        meter.hold(value)
    forms: dict[str, Form] = {}
    once, each_time = plan(graph)
    for step in (*once, *each_time):
        last_read = [values[name] for name in step.last_read if name in values]
        with meter.reading(step):
            if step.call.operator in GATES:
                refuse_other_shapes(step.call.operator, *step.given(values))
            results = step.run(values, _META)
            meter.look_at(results)
        forms.update(zip(step.call.results, map(_form_of, results), strict=True))
        peak_bytes = max(peak_bytes, meter.bytes_alive)
        for name in step.call.results:
            if name in values:
                meter.hold(values[name])
        for value in last_read:
            meter.release(value)
    names = graph.results
    _check_forms(graph, names, forms)
    return GraphSize(tensor_bytes, peak_bytes, meter.n_kernels, tuple(forms[name] for name in names))


def measure_whole(graph: Graph, limits: Limits = DEFAULT_LIMITS) -> GraphSize:
    """Measures a graph that is a whole model: it receives no values, and gives one number.

    Raises:
        GraphTooLargeError: it asks for more memory than it is allowed.
        GraphError: `measure` refuses it, it is a stage, or its loss has several numbers.
    """
    extent = measure(graph, limits)
    names = graph.results
    loss = extent.forms[names.index(graph.outputs[0])] if graph.outputs[0] in names else None
    if graph.received or len(graph.outputs) > 1 or loss is None:
        raise GraphError("graph: expected a whole model, got a stage of one; only a seat of a crew runs that")
    if prod(loss.shape) != 1:
        raise GraphError(f"graph: expected one number as its loss, got {list(loss.shape)}; let the loss end in a mean")
    return extent


class _Memory(Struct):
    """The memory of a value, and the number of its holders."""

    storage: torch.UntypedStorage
    n_values: int = 0


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that sees every operation inside a call, and ends the call when it exceeds the limits."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.n_kernels = 0
        self._limits, self._where = limits, ""
        # Memory is identified by its address, which stays unique while it is held here; views have that of their base.
        self._held: dict[int, _Memory] = {}
        self._of_call: dict[int, torch.UntypedStorage] = {}
        self._bytes_held = self._bytes_of_call = 0

    @property
    def bytes_alive(self) -> int:
        """Bytes of the values that are held, and of all that the last call made."""
        return self._bytes_held + self._bytes_of_call

    def hold(self, value: Tensor) -> None:
        """Counts the memory of a value until it has been released as often as held."""
        storage = value.untyped_storage()
        memory = self._held.setdefault(storage._cdata, _Memory(storage))
        self._bytes_held += 0 if memory.n_values else storage.nbytes()
        memory.n_values += 1

    def release(self, value: Tensor) -> None:
        """Takes back one `hold` of a value."""
        memory = self._held[value.untyped_storage()._cdata]
        memory.n_values -= 1
        if not memory.n_values:
            del self._held[memory.storage._cdata]
            self._bytes_held -= memory.storage.nbytes()

    @contextmanager
    def reading(self, step: PreparedCall) -> Iterator[None]:
        """A context in which one call is made."""
        self._of_call, self._bytes_of_call = {}, 0
        self._where = f"{first_line(', '.join(step.call.results))} = {step.call.operator}"
        try:
            with self:
                yield
        except GraphError:
            raise
        except Exception as error:
            # PyTorch's checks of shapes and dtypes raise errors of any type.
            raise GraphError(f"{self._where}: its arguments do not fit: {first_line(str(error))}") from error

    def look_at(self, results: Sequence[Tensor]) -> None:
        """Checks the results of a call.

        Raises:
            GraphError: a result is empty, on which some kernels end the process with a division by zero.
        """
        for result in results:
            if not result.numel():
                raise GraphError(f"{self._where}: expected at least one element, got {list(result.shape)}")

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        self.n_kernels += 1
        if self.n_kernels > self._limits.max_kernels:
            raise GraphError(f"{self._where}: expected at most {self._limits.max_kernels} operations in all, got more")
        results = function(*args, **(kwargs or {}))
        for result in pytree.tree_leaves(results):
            if isinstance(result, Tensor):
                self._add(result)
        return results

    def _add(self, value: Tensor) -> None:
        # A view takes no memory, but reading all of it takes as long as if it did.
        n_bytes = value.numel() * value.element_size()
        if n_bytes > self._limits.max_bytes:
            self._refuse(f"{list(value.shape)} of {in_words(n_bytes)}")
        storage = value.untyped_storage()
        if storage._cdata not in self._held and storage._cdata not in self._of_call:
            self._of_call[storage._cdata] = storage
            self._bytes_of_call += storage.nbytes()
        if self.bytes_alive > self._limits.max_bytes:
            self._refuse(f"{in_words(self.bytes_alive)} with {list(value.shape)}")

    def _refuse(self, asked: str) -> None:
        raise GraphTooLargeError(
            f"{self._where}: expected at most {in_words(self._limits.max_bytes)} for one member, got {asked}; "
            "a smaller batch size needs less, and a volunteer with more memory may allow more"
        )


def _form_of(result: Tensor) -> Form:
    return Form(tuple(result.shape), NAMES[result.dtype])


def _check_forms(graph: Graph, names: Sequence[str], found: Mapping[str, Form]) -> None:
    """Checks that the graph names the forms of its results rightly, since plans and memory limits rely on them."""
    for name, said in zip(names, graph.forms, strict=bool(graph.forms)):
        if said != found[name]:
            raise GraphError(
                f"{first_line(name)}: expected the form {said.dtype} {list(said.shape)} that the graph says, "
                f"got {found[name].dtype} {list(found[name].shape)}; export it again"
            )
