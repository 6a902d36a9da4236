"""The interface between a task and training: an objective, and abilities that only some objectives have."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.replica import UInt8Array
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import Columns


@runtime_checkable
class Objective(Protocol):
    """A value without weights of its own that turns weights and data into losses."""

    @property
    @abstractmethod
    def layout(self) -> ParameterLayout:
        """The layout of the tensors in the flat weights."""

    @property
    @abstractmethod
    def work_per_member(self) -> int:
        """The work of one trial, in `unit`."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of work, such as tokens, examples or episodes."""

    @abstractmethod
    def initial_weights(self) -> Float32Array:
        """The initial weights [n_parameters] of a run."""

    @abstractmethod
    def evaluate(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> Float32Array:
        """The loss of each member, [n_members]; lower is better, and a loss that is not finite does not count.

        The last digits may differ between machines.
        """


Values = Mapping[str, Float32Array]
"""The arrays that cross a cut, by name."""


class PartObjective(Protocol):
    """A part of a model that was cut, which turns values of the part before, by its own tensors, into values to hand
    on."""

    @property
    @abstractmethod
    def whole(self) -> ParameterLayout:
        """The layout of all tensors in the whole model's flat weights."""

    @property
    @abstractmethod
    def layout(self) -> ParameterLayout:
        """The layout of the part's tensors in the flat weights of the part."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of work, such as tokens, examples or episodes."""

    @property
    @abstractmethod
    def receives(self) -> Mapping[str, tuple[int, ...]]:
        """The shape, for one member, of each value that the part before hands on."""

    @property
    @abstractmethod
    def gives(self) -> Sequence[str]:
        """Names of the values that are handed on, in order; the last part gives losses."""

    @abstractmethod
    def member_bytes(self) -> int:
        """Bytes of memory for each member that passes through the part at the same time; an estimate that is never too
        low."""

    @abstractmethod
    def load(self, weights: Float32Array) -> None:
        """Loads the weights of the part, [n_parameters]."""

    @abstractmethod
    def unperturbed(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        """The values that unperturbed weights hand on for the rows of the group of these trials."""

    @abstractmethod
    def members(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        """The values, [members, ...] each, that members of one group hand on."""


@runtime_checkable
class MasksRows(Protocol):
    """An objective with rows of tensors that matter to some groups only."""

    @abstractmethod
    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:
        """The mask [groups, columns], the same on every machine: 1 for each row of a masked tensor that could change
        the group's loss."""


@runtime_checkable
class SumsGradients(Protocol):
    """An objective whose trials give more of the gradient than losses do."""

    @abstractmethod
    def gradient_sum(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> TrialResults:
        """The losses, and the sum over groups of the gradient estimate, times `ESTIMATE_UNIT`; without noise times
        2^unit_bits.

        The last digits may differ between machines. Groups with a loss that is not finite contribute zero.
        """


@runtime_checkable
class Observes(Protocol):
    """An objective whose trials also tell what members observed, where the layout has statistics of that."""

    @abstractmethod
    def observe(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> TrialResults:
        """The losses as in `evaluate`, and the moments of what the members of each group observed."""


@runtime_checkable
class NamesItsMemory(Protocol):
    """An objective that can tell how much memory it will take, because an untrusted peer may have chosen the sizes."""

    @abstractmethod
    def trial_bytes(self, data: Columns, trials: Trials, *, threads: int) -> int:
        """Bytes that these trials take besides weights and data; an estimate that is never too low."""

    @abstractmethod
    def mask_bytes(self, data: Columns, n_groups: int) -> int:
        """Bytes that the row masks of `n_groups` groups take."""


@runtime_checkable
class Reports(Protocol):
    """An objective that chooses how trials run best on this machine."""

    @abstractmethod
    def report(self) -> str:
        """Lines that explain the choice; empty where there is none."""
