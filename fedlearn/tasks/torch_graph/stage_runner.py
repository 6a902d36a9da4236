"""Runs a stage of a model that was cut, with unperturbed weights and with those of members."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from math import prod
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import TensorNoise
from fedlearn.graphs.checks import DEFAULT_LIMITS, Limits
from fedlearn.graphs.graph import GraphError
from fedlearn.graphs.stages import Stage
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.torch.devices import use_device
from fedlearn.tasks.torch.members.noise import as_tensors, number_of_members
from fedlearn.tasks.torch.members.sequential import load_flat
from fedlearn.tasks.torch.members.trial import Subject
from fedlearn.tasks.torch.module_task import computing
from fedlearn.tasks.torch.trees import as_tensors as columns_as_tensors
from fedlearn.tasks.torch_graph.export.refusals import first_line
from fedlearn.tasks.torch_graph.graph_task import GRADIENT_MEMBERS
from fedlearn.tasks.torch_graph.measure import GraphSize, measure
from fedlearn.tasks.torch_graph.program import Program, Tape

Values = Mapping[str, Float32Array]
"""The arrays that cross a cut, by name."""


_ALIGNMENT = 64
"""The alignment of PyTorch's own memory, in bytes; kernels may sum memory of other alignment in another order."""


class StageGradients(NamedTuple):
    """The derivatives of one group's loss that a stage finds, and what its unperturbed weights give."""

    given: Values
    """What the stage hands on; of the last stage, the loss."""
    cotangents: Values
    """The derivatives by what the stage received, by name."""
    uses: Sequence[tuple[str, Float32Array]]
    """The tensor's name, and the derivative by what was read, for each call that reads a learned tensor."""


@final
class StageRunner:
    """A stage with its weights, which takes and gives plain arrays.

    Consecutive stages give the results of the whole graph, to the bit, if all run on the same machine with the same
    number of threads and the same members at once, since the number of members in a product decides the order of sums.
    """

    def __init__(
        self,
        stage: Stage,
        frozen: Mapping[str, NDArray[Any]],
        *,
        limits: Limits = DEFAULT_LIMITS,
        crossing: frozenset[str] = frozenset(),
    ) -> None:
        """Makes a stage whose weights are zeros until loaded, and which keeps those of the `frozen` arrays that it
        reads. Of the values in the whole graph those in `crossing` may cross a cut.

        Raises:
            GraphError: the stage is not well formed, asks for more than `limits`, or frozen arrays are missing.
        """
        self.stage, self._crossing = stage, crossing
        self.extent: GraphSize = measure(stage, limits)
        self._program = Program(stage, frozen)
        self.backward_bytes = self._program.fit(self.extent.forms, GRADIENT_MEMBERS * limits.max_bytes)
        """Bytes of memory that `backward` takes for results and derivatives."""
        self.member_bytes = self.extent.peak_bytes + self._program.drawn_bytes
        """Bytes of memory that a member takes without derivatives."""
        self._parameters: dict[str, Tensor] = dict(self._program.module.named_parameters())
        self._device, self._threads = torch.device("cpu"), 0
        self.load(np.zeros(sum(prod(spec.shape) for spec in stage.learned), dtype=np.float32))

    def use(self, device: str, *, threads: int) -> None:
        """Sets the device and the number of threads; 0 threads leaves the number as it is."""
        self._device, self._threads = use_device(device), threads
        self._program.module.to(self._device)
        self._parameters = dict(self._program.module.named_parameters())

    def load(self, weights: Float32Array) -> None:
        """Loads the stage's learned tensors from flat weights in its order, [n_parameters]."""
        n_parameters = sum(prod(spec.shape) for spec in self.stage.learned)
        if weights.shape != (n_parameters,):
            raise GraphError(f"weights: expected the {n_parameters} of the stage's tensors, got {list(weights.shape)}")
        self._weights = load_flat(list(self._parameters.values()), weights)

    def unperturbed(self, rows: Columns, received: Values, *, seed: int = 0) -> Values:
        """The values that unperturbed weights give for the rows of one group, [batch_size, ...] of each column.

        Random numbers follow from the seed of the group, here and in what follows.

        Raises:
            GraphError: rows or values do not fit the stage.
        """
        given = self._received(received)
        return self._run(lambda: self._program.run(self._rows(rows, seed), given))

    def forward(self, rows: Columns, received: Values, *, seed: int = 0) -> Values:
        """The values of `unperturbed` in the digits of `backward`: where PyTorch records, some of its kernels differ.

        Raises:
            GraphError: rows or values do not fit the stage.
        """
        return self._run(lambda: self._recorded(self._rows(rows, seed), received, Tape(self._crossing))[1])

    def backward(self, rows: Columns, received: Values, cotangents: Values, *, seed: int = 0) -> StageGradients:
        """The derivatives of a group's loss by what the stage received, and by its tensors.

        `cotangents` are those by what the stage hands on, as the next stage found them; none at the last one. The
        forward pass is run once more, so that nothing has to be kept of it.

        Raises:
            GraphError: rows or values do not fit the stage, or PyTorch cannot differentiate it.
        """
        outer = {name: _tensor(value).to(self._device) for name, value in cotangents.items()}
        tape, found = Tape(self._crossing), list[Tensor]()

        def differentiated() -> dict[str, Tensor]:
            given, results = self._recorded(self._rows(rows, seed), received, tape)
            found.extend(_gradients(results, outer, [*given.values(), *(view for _, view in tape.uses)]))
            return results

        results = self._run(differentiated)
        arrays = [np.asarray(gradient.cpu().contiguous()) for gradient in found]
        n_received = len(self.stage.received)
        return StageGradients(
            results,
            {spec.name: array for spec, array in zip(self.stage.received, arrays, strict=False)},
            [(name, array) for (name, _), array in zip(tape.uses, arrays[n_received:], strict=True)],
        )

    def _recorded(
        self, rows: Mapping[str, Tensor], received: Values, tape: Tape
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The received values and the results, in a graph that PyTorch can go back through."""
        given = {name: value.requires_grad_() for name, value in self._received(received).items()}
        with torch.enable_grad():
            return given, self._program.run(rows, given, tape)

    def members(self, rows: Columns, received: Values, noise: Sequence[TensorNoise], *, seed: int = 0) -> Values:
        """The values that some members of the group give, batched; values received and given are [members, ...].

        `noise` has an entry for each of the stage's learned tensors. The last stage gives the losses, [members].

        Raises:
            GraphError: rows or values do not fit the stage.
        """
        tensors = as_tensors(noise, self._device)
        given = self._received(received, number_of_members(tensors))
        its = self._rows(rows, seed)
        subject = Subject(self._program.run, self._parameters, self._weights, tensors, (its,), (given,), nullcontext)
        return self._run(subject.batched_or_sequential)

    def _rows(self, rows: Columns, seed: int) -> dict[str, Tensor]:
        """What the stage reads of a group's rows, and its random numbers."""
        read = {spec.name: rows[spec.name] for spec in self.stage.inputs if spec.name in rows}
        tensors: dict[str, Tensor] = columns_as_tensors(read, self._device)
        return tensors | self._program.drawn(seed)

    def _received(self, values: Values, *members: int) -> dict[str, Tensor]:
        for spec in self.stage.received:
            got = values[spec.name].shape if spec.name in values else None
            if got != (*members, *spec.shape):
                raise GraphError(f"{spec.name!r}: expected {[*members, *spec.shape]} of the stage before, got {got}")
        return {spec.name: _tensor(values[spec.name]).to(self._device) for spec in self.stage.received}

    def _run(self, run: Callable[[], Mapping[str, Tensor]]) -> Values:
        with computing(self._threads):
            # This check is outside of the members' function, in which a value would be that of one member.
            self._program.prepare()
            try:
                results = run()
            except (RuntimeError, IndexError) as error:
                raise GraphError(
                    f"stage: expected rows and values that it can run on: {first_line(str(error))}; "
                    "all seats of a crew must have the same graph and data"
                ) from error
            return {name: np.asarray(result.detach().cpu().contiguous()) for name, result in results.items()}


def _gradients(results: Mapping[str, Tensor], outer: Mapping[str, Tensor], by: Sequence[Tensor]) -> list[Tensor]:
    """The derivatives by some tensors, of a loss, or as `outer` has those by the results; zeros by what is not used."""
    reached = {name: result for name, result in results.items() if result.requires_grad}
    weights = [outer[name] if outer else torch.ones_like(result) for name, result in reached.items()]
    found = torch.autograd.grad(list(reached.values()), by, weights, allow_unused=True)
    return [torch.zeros_like(one) if part is None else part for one, part in zip(by, found, strict=True)]


def _tensor(array: Float32Array) -> Tensor:
    """The array as a tensor with PyTorch's alignment; a copy if the array is aligned otherwise."""
    array = np.asarray(array, dtype=np.float32, order="C")
    is_as_ours = array.flags.writeable and array.ctypes.data % _ALIGNMENT == 0
    return torch.from_numpy(array) if is_as_ours else torch.tensor(array)
