"""What the inside needs of a task: an objective, and the abilities that one may have beyond the least."""

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
    """Turns weights and data into losses; a value without weights of its own."""

    @property
    @abstractmethod
    def layout(self) -> ParameterLayout:
        """Where each tensor lies in the flat weights."""

    @property
    @abstractmethod
    def work_per_member(self) -> int:
        """Units of work that one member costs."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """What `work_per_member` counts: tokens, examples, episodes, ..."""

    @abstractmethod
    def initial_weights(self) -> Float32Array:
        """Weights [n_parameters] that a run begins with."""

    @abstractmethod
    def evaluate(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> Float32Array:
        """Loss of each member, [n_members]: lower is better, and what is not finite does not count.

        Last digits may differ between machines.
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
    """Some rows of some tensors matter to some groups only."""

    @abstractmethod
    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:
        """[groups, columns] 1 for each row of a masked tensor that could change the group's loss; exact."""


@runtime_checkable
class SumsGradients(Protocol):
    """Its trials can tell more of the gradient than losses do."""

    @abstractmethod
    def gradient_sum(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> TrialResults:
        """The losses with what the trials say of the gradient: `ESTIMATE_UNIT` times its sum over groups.

        Last digits may differ between machines; of groups with a loss that is not finite it says nothing.
        """


@runtime_checkable
class NamesItsMemory(Protocol):
    """Can say what it would take before it takes it, since a stranger may have named the sizes."""

    @abstractmethod
    def trial_bytes(self, data: Columns, trials: Trials, *, threads: int) -> int:
        """Of these trials, beside weights and data; rather too much than too little."""

    @abstractmethod
    def mask_bytes(self, data: Columns, n_groups: int) -> int:
        """Of the row masks of so many groups."""


@runtime_checkable
class Reports(Protocol):
    """Finds out how trials run best on this machine."""

    @abstractmethod
    def report(self) -> str:
        """Lines that say how, and why; empty where there is nothing to choose."""
