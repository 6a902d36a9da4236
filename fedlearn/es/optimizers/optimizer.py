"""The interface between a replica and its optimizer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Self

import msgspec

from fedlearn.es.layout import Float32Array
from fedlearn.es.sums.estimate import Int32Array
from fedlearn.es.sums.moments import Int64Array

Numbers = Mapping[str, float]
"""An optimizer's running numbers by name, such as Adam's products of betas."""


class TensorStep(msgspec.Struct, frozen=True):
    """The values that the step of some tensors depends on, beside the optimizer's own settings."""

    numbers: Numbers
    """The optimizer's running numbers, as `advanced` gives them for this step."""
    gradient_scale: float
    """Factor on the integer estimate; the product is the gradient."""
    scale: float
    """The tensors' relative scale, which multiplies the learning rate."""
    decay: float
    """The share of the weights that is subtracted before the step."""
    sides: tuple[int, int] | None = None
    """Rows and columns of hidden matrices, which lie one after another and take their steps as wholes; None where each
    element takes its own."""
    is_turned: bool = False
    """Whether these matrices lie side by side instead, and turned: [columns, number, rows]."""
    threads: int = 1
    """The most threads that share a large matrix; 0 means as many as there are processors. No bit depends on it."""
    is_matrix: bool = True
    """Whether tensors have two dimensions or more, where the optimizer goes by matrix."""


class GradientPart(msgspec.Struct, frozen=True):
    """Some tensors of a whole model, [n]: views of their slots, and of the estimate of their gradient."""

    slots: Mapping[str, Float32Array]
    estimate: Int32Array
    gradient_scale: float
    """Factor on the integer estimate; the product is the gradient."""


class SearchStep(msgspec.Struct, frozen=True, eq=False):
    """What a step reads and moves where members' noise is correlated: of n parameters that are searched."""

    position: Float32Array
    """The unperturbed parameters [n], moved in place."""
    factor: Float32Array
    """The matrix [n, n], or its diagonal [n], that turns numbers into moves, before `scales` and sigma; moved in
    place."""
    path: Float32Array
    """The optimizer's slot [n], moved in place."""
    scales: Float32Array
    """The parameters' relative scales [n]."""
    numbers: Iterable[Int64Array]
    """The members' whole numbers, of mean 0 and variance 1: some members after another, [some members, n] each."""
    utilities: Int64Array
    """The members' utilities [members]."""


class Optimizer(msgspec.Struct, frozen=True, array_like=True):
    """A rule with its settings, as an Update carries it: a struct of floats, of which the first is the learning rate.

    A field that has a description, a range and a default is a setting of runs; see `hyperparameters.py`. The state
    between steps belongs to the replica, which keeps it by name. Replicas take steps within `exact_arithmetic`: a rule
    of single IEEE operations on float32 in a fixed order, such as NumPy's, then gives every machine the same bits. A
    rule with a kernel in `es_core` has the same arithmetic in NumPy as `plain_step`, which tests hold it to.
    """

    rate_to_adam: ClassVar[float] = 1.0
    """The usual learning rate as a multiple of Adam's, by which a run chooses the rate."""
    usual_decay: ClassVar[float] = 0.0
    """The weight decay of a run by sums of gradients that chooses its rate, where none is given."""
    by_matrix: ClassVar[bool] = False
    """Whether the step of an element depends on what tensor it is of: of a hidden matrix on the whole matrix."""
    gathers: ClassVar[bool] = False
    """Whether steps depend on all weights at once, so that no volunteer may hold a part of the model; `gather` is then
    called."""

    searches: ClassVar[bool] = False
    """Whether members' noise is correlated by a factor that steps adapt; `search` is then called in place of `step`."""
    rate_to_sigma: ClassVar[float] = 0.0
    """The usual learning rate as a multiple of sigma, where it follows from sigma; 0 where it follows from Adam's."""

    learning_rate: float
    """The learning rate, before a tensor's relative scale."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the arrays that the optimizer keeps, each as long as the weights and zero at first."""
        return ()

    def scaled(self, factor: float) -> Self:
        """The same with the learning rate multiplied by `factor`."""
        return msgspec.structs.replace(self, learning_rate=self.learning_rate * factor)

    def lowered(self, factor: float) -> Self:
        """The same with a lower learning rate, by this factor, for what the first steps moved too far."""
        return msgspec.structs.replace(self, learning_rate=self.learning_rate / factor)

    def widened(self, factor: int) -> Self:  # noqa: ARG002
        """The same for a search whose steps have more members, by this factor, for what they may hide or show."""
        return self

    def advanced(self, numbers: Numbers) -> dict[str, float]:
        """The running numbers that a step uses and leaves behind, from those before it; before the first step there are
        none."""
        return dict(numbers)

    def gather(self, pieces: Sequence[GradientPart]) -> None:
        """Moves the slots of all tensors that learn, in place, before their steps are taken."""

    def search(self, by: SearchStep) -> None:
        """Takes the step of all parameters that are searched, in place."""

    def step(
        self, weights: Float32Array, slots: Mapping[str, Float32Array], estimate: Int32Array, by: TensorStep
    ) -> None:
        """Takes the step of some tensors in place; weights, slots and estimate are their intervals, [n]."""
        raise NotImplementedError  # of an optimizer that searches, nothing calls it
