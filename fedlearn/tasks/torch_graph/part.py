"""A part of a shared task: one stage of its graph, with the tensors that the stage reads."""

from collections.abc import Mapping, Sequence
from typing import final

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.noise import member_noise
from fedlearn.es.replica import UInt8Array
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from fedlearn.graphs.checks import check
from fedlearn.graphs.graph import GraphError
from fedlearn.graphs.pieces import stages_of
from fedlearn.graphs.shards import sharded
from fedlearn.tasks.blocks import Columns, drawn_rows, group_words
from fedlearn.tasks.objective import Values
from fedlearn.tasks.parts import part_layout
from fedlearn.tasks.row_masks import RowReader
from fedlearn.tasks.task import Device, Task
from fedlearn.tasks.torch_graph.sharing import limits_of, unpacked
from fedlearn.tasks.torch_graph.stage_runner import StageRunner


@final
class GraphPart:
    """An implementation of `fedlearn.tasks.objective.PartObjective` for a stage of a graph."""

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
        stages = stages_of(sharded(shared.graph, shards), cuts)
        if not 0 <= place < len(stages):
            raise GraphError(f"seat: expected a place from 0 to {len(stages) - 1}, got {place}")
        stage = stages[place]
        self._runner = StageRunner(stage, shared.frozen, limits=limits_of(max_bytes))
        self.whole: ParameterLayout = shared.layout
        self.layout: ParameterLayout = part_layout(self.whole, [array.name for array in stage.learned])
        self.unit = Task.unit
        self.receives: Mapping[str, tuple[int, ...]] = {array.name: array.shape for array in stage.received}
        self.gives: Sequence[str] = stage.outputs
        self._batch_size = shared.graph.inputs[0].shape[0]
        self._reader = RowReader(self.whole, shared.reads, batch_size=self._batch_size, seed=seed)
        self._seed = seed
        self._device: Device = device
        self._threads: int | None = None

    def member_bytes(self) -> int:
        return self._runner.extent.peak_bytes

    def load(self, weights: Float32Array) -> None:
        self._runner.load(weights)

    def unperturbed(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        self._use(threads)
        return self._runner.unperturbed(self._rows(data, trials), received)

    def members(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        self._use(threads)
        noise = member_noise(self.layout, trials, seed=self._seed)
        return self._runner.members(self._rows(data, trials), received, noise)

    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:
        return self._reader.row_masks(update, data)

    def _use(self, threads: int) -> None:
        if threads != self._threads:
            self._runner.use(self._device, threads=threads)
            self._threads = threads

    def _rows(self, data: Columns, trials: Trials) -> Columns:
        """The rows of the group to which the members of these trials belong."""
        words = group_words(self._seed, trials.step, trials.first_group, 1, self._batch_size)
        return {name: rows[0] for name, rows in drawn_rows(data, words).items()}
