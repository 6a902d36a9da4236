"""What fedlearn needs of a task inside: an objective, and abilities that some objectives have."""

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
    """Turns weights and data into losses; it is a value without weights of its own."""

    @property
    @abstractmethod
    def layout(self) -> ParameterLayout:
        """Where each tensor lies in the flat weights."""

    @property
    @abstractmethod
    def work_per_member(self) -> int:
        """Work of one trial, in `unit`."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of work: tokens, examples, episodes, ..."""

    @abstractmethod
    def initial_weights(self) -> Float32Array:
        """The weights [n_parameters] with which a run begins."""

    @abstractmethod
    def evaluate(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> Float32Array:
        """Loss of each member, [n_members]: lower is better, and a loss that is not finite does not count.

        The last digits may differ between machines.
        """


Values = Mapping[str, Float32Array]
"""What crosses a cut, by name."""


class PartObjective(Protocol):
    """A part of a model that was cut: what comes from the part before, and its own tensors, into what goes on."""

    @property
    @abstractmethod
    def whole(self) -> ParameterLayout:
        """Where each tensor lies in the whole model's flat weights."""

    @property
    @abstractmethod
    def layout(self) -> ParameterLayout:
        """Where each of its own lies in the flat weights of the part."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """Of a member's work."""

    @property
    @abstractmethod
    def receives(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each value that the part before gives, for one member."""

    @property
    @abstractmethod
    def gives(self) -> Sequence[str]:
        """Names of what goes on, in order; the last part gives losses."""

    @abstractmethod
    def member_bytes(self) -> int:
        """Memory that each of the members takes that go through the part at once; rather too much than too little."""

    @abstractmethod
    def load(self, weights: Float32Array) -> None:
        """Takes the weights of the part, [n_parameters]."""

    @abstractmethod
    def unperturbed(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        """What goes on of the weights as they are, on the rows of the group of these trials."""

    @abstractmethod
    def members(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        """The same of some members of one group, [members, ...] of each value."""


@runtime_checkable
class MasksRows(Protocol):
    """An objective with rows of tensors that matter to some groups only."""

    @abstractmethod
    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:
        """[groups, columns] 1 for each row of a masked tensor that could change the group's loss; the same
        everywhere."""


@runtime_checkable
class SumsGradients(Protocol):
    """An objective whose trials tell more about the gradient than losses do."""

    @abstractmethod
    def gradient_sum(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> TrialResults:
        """The losses, and `ESTIMATE_UNIT` times the sum over groups of the gradient estimate.

        The last digits may differ between machines; groups with a loss that is not finite count zero.
        """


@runtime_checkable
class NamesItsMemory(Protocol):
    """An objective that can say how much memory it will take, since a stranger may have named the sizes."""

    @abstractmethod
    def trial_bytes(self, data: Columns, trials: Trials, *, threads: int) -> int:
        """Bytes that these trials take besides weights and data; rather too many than too few."""

    @abstractmethod
    def mask_bytes(self, data: Columns, n_groups: int) -> int:
        """Bytes that the row masks of `n_groups` groups take."""


@runtime_checkable
class Reports(Protocol):
    """An objective that finds out how trials run best on this machine."""

    @abstractmethod
    def report(self) -> str:
        """Lines that say how, and why; empty where there is no choice."""
