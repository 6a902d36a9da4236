"""Tasks as users bring them: named tensors to learn, optional data, and the losses of members.

A task is a value. It holds no weights of a run: it says where learning starts, and judges whatever weights it is given.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

import msgspec
import numpy as np
import safetensors.numpy

from fedlearn.es.layout import Float32Array, ParameterLayout, Statistic, TensorSpec
from fedlearn.es.noise import TensorNoise
from fedlearn.es.sums.moments import NO_MOMENTS, Int64Array
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.film import Film
from fedlearn.tasks.members import ArrayMembers

CUSTOM = "custom"
"""The kind of tasks that need none of their own: the class of the task defines everything."""

Setting = str | int | float | bool
Device = Literal["cpu", "cuda", "mps"]
"""The device on which trials run; everything that is replicated stays on the processor."""

GRADIENT_BYTES = 2**26
"""The most bytes that the gradients of several groups take while they are computed together."""

MOST_GROUPS = 64
"""The most groups whose gradients are computed together."""

ROWS_BY_LOSSES = 8
"""Rows of a group with which runs by losses learn most in their time: a loss of more rows is one number, too."""


class Batch(msgspec.Struct, frozen=True, eq=False):
    """The rows and seeds that some groups are given; the members of a group share them."""

    rows: Columns
    """Rows of the data, [groups, batch_size, ...] of each column; empty for a task without data."""
    seeds: tuple[int, ...]
    """A seed below 2^32 for each group, from which members draw all else that they share, such as episodes or
    samples."""


class LossGradients(msgspec.Struct, frozen=True, eq=False):
    """The losses of unperturbed weights on the rows of some groups, and the sum of their gradients."""

    losses: Float32Array
    """The loss of each group, [groups]; infinite where it or its gradient is not finite."""
    total: Float32Array
    """The sum of the derivatives of the finite losses with respect to each weight, [n_parameters]."""


class NoGradientError(ValueError):
    """Raised where nothing but the loss of a task is known."""


class Members(Protocol):
    """The members of some groups, ready to run; member i belongs to group i // group_size."""

    n_groups: int
    group_size: int

    def __len__(self) -> int:
        """Number of members in all groups."""

    def __call__(self, function: Callable[..., Any], *grouped: Any, own: Sequence[Any] = ()) -> Any:  # noqa: ANN401
        """Calls `function(*grouped, *own)` with the weights of each member; the results are [members, ...].

        Arrays in `grouped` are [groups, ...], and each member is given its group's entry; arrays in `own` are
        [members, ...].
        """

    def each(self) -> Iterator[Mapping[str, Float32Array]]:
        """The tensors of each member as plain arrays, by name."""


class Task(ABC):
    """A task: named tensors to train, data if it needs any, and a loss for each member."""

    kind: ClassVar[str] = CUSTOM
    """The name of the kind of these tasks; one that no package brings stands for `custom`."""

    unit: ClassVar[str] = "examples"
    """The unit of `work_per_member`, such as examples, tokens or episodes."""
    least_groups: ClassVar[int] = 1
    """The fewest groups of a step where losses are measured and nobody says how many: more where those of one say
    little."""

    is_tuned: ClassVar[bool] = False
    """Whether learning begins with good weights, from which it takes small steps."""

    data: Columns = MappingProxyType({})
    """Named columns of one length, a row for each example; empty for a task without data."""
    held_out: Columns = MappingProxyType({})
    """Held-out rows for `evaluate`, with the columns of `data`."""
    batch_size: int = 1
    """Number of rows of data that each group sees in a step."""
    batch_size_by_losses: int = 0
    """The same in a run by losses, where it is another; 0 where it is not."""
    scales: Mapping[str, float] = MappingProxyType({})
    """Factors on sigma and learning rate of the tensors whose name contains the key; the first match counts."""
    reads: Mapping[str, str] = MappingProxyType({})
    """The column of data with row numbers, for each tensor whose rows matter only to the groups whose data name
    them."""
    hidden: Mapping[str, int] = MappingProxyType({})
    """Number of hidden matrices in each tensor that holds some, one below the other, or negative where they lie side by
    side; see `TensorSpec.n_hidden`."""
    statistics: Mapping[str, Statistic] = MappingProxyType({})
    """The tensors, at most one each, that hold mean and deviation of what members observe; `observe` then gives their
    moments."""
    settings: Mapping[str, Setting] = MappingProxyType({})
    """Settings of a run that suit the task, by key; the run's own configuration overrides them."""

    @property
    @abstractmethod
    def tensors(self) -> Mapping[str, Float32Array]:
        """The tensors to train, with their initial values: float32, in a fixed order, equal on every machine."""

    def draw_weights(self, seed: int) -> None:  # noqa: B027 (most tasks are given their initial values)
        """Draws random initial values anew, from the seed of a run; those of seed 0 come without a call."""

    def members(self, weights: Float32Array, noise: Sequence[TensorNoise], *, n_groups: int) -> Members:
        """Members around `weights` [n_parameters], each with its noise: one entry per tensor of `layout`.

        Unless a task has others, they call a function with their tensors as NumPy arrays by name.
        """
        return ArrayMembers(self.layout.split(weights), noise, n_groups=n_groups)

    @abstractmethod
    def losses(self, members: Members, batch: Batch) -> Sequence[float] | Float32Array:
        """A loss for each member, lower is better; a member whose loss is not finite does not count."""

    def observe(self, members: Members, batch: Batch) -> tuple[Sequence[float] | Float32Array, Int64Array]:
        """The losses, and the moments of what the members of each group observed, as in `fedlearn.es.sums.moments`."""
        return self.losses(members, batch), NO_MOMENTS

    @property
    def is_differentiable(self) -> bool:
        """Whether the task may have gradients; True does not promise that its loss has one."""
        return type(self).loss_gradients is not Task.loss_gradients

    @property
    def gradient_reason(self) -> str:
        """The reason why a run measures gradients of the task, as its first lines say it."""
        return "PyTorch differentiates the loss by all that it depends on"

    @property
    def backward_bytes(self) -> int:
        """Bytes that the gradient of one group takes besides weights and rows; 0 where nobody knows."""
        return 0

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:  # noqa: ARG002
        """The losses of the unperturbed `weights` [n_parameters] for the groups of a batch, and the sum of their
        gradients.

        Raises:
            NoGradientError: only losses of the task are known.
        """
        raise NoGradientError(f"a task of kind {self.kind} gives a loss and no gradient")

    @property
    def work_per_member(self) -> int:
        """The work of one member's trial, in `unit`."""
        return self.batch_size

    @property
    def usual_population(self) -> int:
        """The population that suits the task if members take little time; 0 means as many as fill a step."""
        return 0

    @property
    def frozen(self) -> Columns:
        """Arrays that are not trained but must be the same on every machine, by name."""
        return {}

    @property
    def layout(self) -> ParameterLayout:
        """The layout of the tensors in the flat weights."""
        shapes = {name: tensor.shape for name, tensor in self.tensors.items()}
        return layout_of(shapes, self.scales, self.reads, self.hidden, self.statistics)

    def use(self, device: Device, *, threads: int) -> None:  # noqa: B027 (most tasks have nothing to set)
        """Sets the device and the number of threads for losses; 0 threads means as many as there are processors."""

    def report(self) -> str:
        """Lines that explain how members run on this machine; empty if there is only one possibility."""
        return ""

    def as_graph(self, *, batch_size: int = 0) -> bytes:  # noqa: ARG002
        """The task as data, from which the kind `graph` makes a task again, for so many rows; 0 means its own number.

        Raises:
            ValueError: the task is code, which does not travel.
        """
        raise ValueError(f"a task of kind {self.kind} is code, which does not travel")

    def state_dict(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        """The task's tensors with these weights, and the frozen ones, by name, as safetensors."""
        tensors = {**self.layout.split(weights), **self.frozen}
        in_order = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
        return safetensors.numpy.save(in_order, {"format": "pt", **about})

    def film(self, weights: Float32Array) -> Film:  # noqa: ARG002
        """An episode of unperturbed weights, drawn.

        Raises:
            ValueError: the task has nothing to draw.
        """
        raise ValueError(f"video: expected a policy in an environment, got a task of kind {self.kind}; try eval")

    def texts(self, weights: Float32Array, prompts: Sequence[str]) -> list[tuple[str, str]]:  # noqa: ARG002
        """Prompts, held-out ones where none are given, each with what unperturbed weights write after it.

        Raises:
            ValueError: the task's model writes no texts.
        """
        raise ValueError(f"expected a model that writes text, got a task of kind {self.kind}; try eval, or --video")

    def show(self, loss: float) -> tuple[str, float]:
        """The name, such as "reward", and the value of the mean loss in its usual unit."""
        return "loss", loss

    def evaluate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:  # noqa: ARG002
        """Named metrics of unperturbed weights on held-out data; empty if there are none."""
        return {}


def most_at_once(backward_bytes: int) -> int:
    """The most groups whose gradients are computed together, where that of one takes so many bytes."""
    return min(max(GRADIENT_BYTES // max(backward_bytes, 1), 1), MOST_GROUPS)


def layout_of(
    shapes: Mapping[str, tuple[int, ...]],
    scales: Mapping[str, float],
    reads: Mapping[str, str],
    hidden: Mapping[str, int],
    statistics: Mapping[str, Statistic] = MappingProxyType({}),
) -> ParameterLayout:
    """The layout of tensors with these shapes, and with the `scales`, `reads`, `hidden` and `statistics` of a task.

    Raises:
        ValueError: a key of `scales` or `reads` matches no tensor, or a tensor does not hold so many hidden matrices.
    """
    idle = {
        "scales": [part for part in scales if not any(part in name for name in shapes)],
        "reads": [name for name in reads if name not in shapes],
    }
    for setting, keys in idle.items():
        if keys:
            expected = "part of a tensor's name" if setting == "scales" else "a tensor's name"
            raise ValueError(f"{setting}: expected {expected}, got {keys[0]!r}; tensors are {listed(shapes, 20)}")
    specs, column = [], 0
    for name, shape in shapes.items():
        scale = next((scale for part, scale in scales.items() if part in name), 1.0)
        is_masked = name in reads
        mask_column, statistic = column if is_masked else -1, statistics.get(name)
        specs.append(TensorSpec(name, shape, scale, mask_column, hidden.get(name, 0), statistic=statistic))
        column += shape[0] if is_masked else 0
    for spec in specs:
        side = spec.sides[0 if spec.n_hidden > 0 else 1]
        if spec.n_hidden and (not spec.is_matrix or side % spec.n_hidden):
            raise ValueError(
                f"hidden: expected a divisor of the rows of {spec.name} {list(spec.shape)}, or minus one of its "
                f"columns, got {spec.n_hidden}"
            )
    return ParameterLayout(tuple(specs))


def listed(names: Collection[str], most: int = 3) -> str:
    """The first names in a row, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(list(names)[:most]) + rest


def flat_weights(tensors: Mapping[str, Float32Array]) -> Float32Array:
    """The flat weights [n_parameters], which are the tensors one after another."""
    return np.concatenate([np.asarray(tensor, dtype=np.float32).reshape(-1) for tensor in tensors.values()])
