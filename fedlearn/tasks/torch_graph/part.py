"""A part of a shared task: one stage of its graph, with the tensors that the stage reads."""

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.noise import member_noise
from fedlearn.es.replica import UInt8Array
from fedlearn.es.sums.estimate import CodedEstimate, Dither
from fedlearn.es.sums.moments import Int64Array
from fedlearn.es.sums.parts import encode_part, shared_rows
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from fedlearn.graphs.checks import check
from fedlearn.graphs.graph import GraphError
from fedlearn.graphs.pieces import crossing_values, stages_of
from fedlearn.graphs.shards import sharded
from fedlearn.tasks.blocks import Columns, drawn_rows, group_words
from fedlearn.tasks.limits import SUM_BYTES
from fedlearn.tasks.parts.layout import part_layout
from fedlearn.tasks.parts.objective import PartGradients, Values
from fedlearn.tasks.passes import Passes
from fedlearn.tasks.row_masks import RowReader
from fedlearn.tasks.task import Device, Task
from fedlearn.tasks.torch_graph.sharing import limits_of, unpacked
from fedlearn.tasks.torch_graph.stage_runner import StageGradients, StageRunner

MOST_OF_A_MEMBER = 2.0**40
"""The bound of a member's derivative in units, which keeps the sum of a lease an integer of 64 bits."""


@final
class GraphPart:
    """An implementation of `fedlearn.tasks.parts.objective.PartObjective` for a stage of a graph."""

    def __init__(
        self,
        attachment: bytes,
        cuts: Sequence[int],
        place: int,
        *,
        shards: int = 1,
        seed: int,
        device: Device,
        max_bytes: int,
    ) -> None:
        """`cuts` are the numbers of the pieces behind which the graph is cut, `place` the number of this part.

        The vocabulary is first cut into `shards` shards.

        Raises:
            GraphError: the graph can't be cut there, or the part asks for more than `max_bytes`.
        """
        shared = unpacked(attachment)
        check(shared.graph)
        graph = sharded(shared.graph, shards)
        stages = stages_of(graph, cuts)
        if not 0 <= place < len(stages):
            raise GraphError(f"seat: expected a place from 0 to {len(stages) - 1}, got {place}")
        stage = stages[place]
        limits, crossing = limits_of(max_bytes), crossing_values(graph)
        self._runner = StageRunner(stage, shared.frozen, limits=limits, crossing=crossing)
        self.whole: ParameterLayout = shared.layout
        layouts = [part_layout(self.whole, [array.name for array in each.learned]) for each in stages]
        self.layout: ParameterLayout = layouts[place]
        self._shared = shared_rows(layouts)
        self._slices = {
            array.name: slice(begin, begin + tensor.size)
            for array, begin, tensor in zip(stage.learned, self.layout.offsets, self.layout.tensors, strict=True)
        }
        self.unit = Task.unit
        self.receives: Mapping[str, tuple[int, ...]] = {array.name: array.shape for array in stage.received}
        shapes = {**self.receives, **dict(zip(stage.results, (form.shape for form in stage.forms), strict=True))}
        self.gives: Mapping[str, tuple[int, ...]] = {name: shapes[name] for name in stage.outputs}
        self._batch_size = shared.graph.inputs[0].shape[0]
        self._reader = RowReader(self.whole, shared.reads, batch_size=self._batch_size, seed=seed)
        self._seed, self._passes = seed, Passes(seed)
        self._device: Device = device
        self._threads: int | None = None

    def member_bytes(self) -> int:
        return self._runner.member_bytes

    def load(self, weights: Float32Array) -> None:
        self._runner.load(weights)

    def unperturbed(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        self._use(threads)
        rows, seed = self._rows(data, trials)
        return self._runner.unperturbed(rows, received, seed=seed)

    def members(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        self._use(threads)
        noise = member_noise(self.layout, trials, seed=self._seed)
        rows, seed = self._rows(data, trials)
        return self._runner.members(rows, received, noise, seed=seed)

    def forward(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        self._use(threads)
        rows, seeds = self._member_rows(data, trials)
        return _stacked(
            [self._runner.forward(_of(rows, n), _of(received, n), seed=seed) for n, seed in enumerate(seeds)],
        )

    def backward(
        self, data: Columns, trials: Trials, received: Values, cotangents: Values, *, threads: int
    ) -> PartGradients:
        self._use(threads)
        (rows, seeds), unit = self._member_rows(data, trials), 2.0**trials.perturbation.unit_bits
        total, is_finite, found = np.zeros(self.layout.size, dtype=np.int64), True, list[StageGradients]()
        for n, seed in enumerate(seeds):
            its = self._runner.backward(_of(rows, n), _of(received, n), _of(cotangents, n), seed=seed)
            is_finite &= all(np.isfinite(value).all() for value in its.given.values())
            for name, gradient in its.uses:
                is_finite &= _add(total[self._slices[name]], gradient, unit)
            found.append(its)
        return PartGradients(
            _stacked([its.given for its in found]), _stacked([its.cotangents for its in found]), total, is_finite
        )

    def encoded(self, total: Int64Array, trials: Trials) -> CodedEstimate:
        dither = Dither(self._seed, trials.step, trials.first_member, bits=trials.perturbation.sum_bits)
        return encode_part(self.whole, self.layout, total, dither, self._shared)

    @property
    def backward_bytes(self) -> int:
        return self._runner.extent.tensor_bytes + self._runner.backward_bytes + SUM_BYTES * self.layout.size

    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:
        return self._reader.row_masks(update, data)

    def _use(self, threads: int) -> None:
        if threads != self._threads:
            self._runner.use(self._device, threads=threads)
            self._threads = threads

    def _words(self, trials: Trials) -> NDArray[np.uint64]:
        return group_words(self._seed, trials.step, trials.first_member, trials.n_members, self._batch_size)

    def _member_rows(self, data: Columns, trials: Trials) -> tuple[Columns, list[int]]:
        """The rows and the seed of each member without noise."""
        words = self._words(trials)
        return self._passes.columns(data, trials, words), words[:, 0].tolist()

    def _rows(self, data: Columns, trials: Trials) -> tuple[Columns, int]:
        """The rows and the seed of the group to which the members of these trials belong."""
        words = group_words(self._seed, trials.step, trials.first_group, 1, self._batch_size)
        return {name: rows[0] for name, rows in drawn_rows(data, words).items()}, int(words[0, 0])


def _of(values: Columns, member: int) -> Columns:
    return {name: value[member] for name, value in values.items()}


def _stacked(values: Sequence[Values]) -> Values:
    """The values of members, [members, ...] each."""
    return {name: np.stack([each[name] for each in values]) for name in values[0]}


def _add(total: Int64Array, gradient: Float32Array, unit: float) -> bool:
    """Adds a gradient in units to integers, whose sum depends on no order; gives whether it is finite."""
    numbers = gradient.reshape(-1) * np.float64(unit)
    if not np.isfinite(numbers).all():
        return False
    total += np.rint(np.clip(numbers, -MOST_OF_A_MEMBER, MOST_OF_A_MEMBER)).astype(np.int64)
    return True
