"""The interface between a part of a model that was cut and the seat that computes it."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol

import msgspec

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.replica import UInt8Array
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.sums.moments import Int64Array
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import Columns

Values = Mapping[str, Float32Array]
"""The arrays that cross a cut, by name."""


class PartGradients(msgspec.Struct, frozen=True, eq=False):
    """What a part finds on the way back of some members without noise."""

    given: Values
    """The values [members, ...] that the part hands on; the last part has the losses here."""
    cotangents: Values
    """The derivatives of each member's loss by what the part received, [members, ...]."""
    total: Int64Array
    """The sum over members of the derivatives by the part's tensors, [n_parameters], in units of 2^-unit_bits."""
    is_finite: bool
    """Whether all losses and derivatives are finite; else the total is of no use."""


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
    def gives(self) -> Mapping[str, tuple[int, ...]]:
        """The shape, for one member, of each value that is handed on, in order; the last part gives losses."""

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

    @abstractmethod
    def forward(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        """The values, [members, ...] each, that members without noise hand on, each of rows of its own."""

    @abstractmethod
    def backward(
        self, data: Columns, trials: Trials, received: Values, cotangents: Values, *, threads: int
    ) -> PartGradients:
        """The derivatives of these members' losses; `cotangents` are those by what the part hands on, none at the last
        part.

        Raises:
            ValueError: the part can't be differentiated.
        """

    @abstractmethod
    def encoded(self, total: Int64Array, trials: Trials) -> CodedEstimate:
        """The sum of the derivatives of these members as it travels: exact for what other parts add to as well."""

    @property
    @abstractmethod
    def backward_bytes(self) -> int:
        """Bytes of memory that `backward` takes; an estimate that is never too low."""

    @abstractmethod
    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:
        """The mask [groups, columns] as an `Objective` gives it, for the tensors of the whole model."""
