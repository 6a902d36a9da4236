"""What a user brings: named tensors to learn, data or none, and the losses of members.

A task is a value. It holds no weights of a run: it says where learning starts, and judges whatever weights it is given.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

import msgspec
import numpy as np
import safetensors.numpy

from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.noise import TensorNoise
from fedlearn.tasks.blocks import Columns

Setting = str | int | float | bool
Device = Literal["cpu", "cuda", "mps"]
"""Where trials run; everything that is replicated stays on the processor."""


class Batch(msgspec.Struct, frozen=True, eq=False):
    """What some groups are given; the members of a group are given the same."""

    rows: Columns
    """Rows of the data, [groups, batch_size, ...] of each column; empty for a task without data."""
    seeds: tuple[int, ...]
    """One a group, below 2^32: for whatever else its members share, such as episodes or samples."""


class Members(Protocol):
    """The members of some groups, ready to be tried; member i belongs to group i // group_size."""

    n_groups: int
    group_size: int

    def __len__(self) -> int:
        """Members in all groups together."""

    def __call__(self, function: Callable[..., Any], *grouped: Any, own: Sequence[Any] = ()) -> Any:  # noqa: ANN401
        """`function(*grouped, *own)` by each member; results are [members, ...].

        Arrays in `grouped` are [groups, ...] and a member is given its group's; arrays in `own` are [members, ...].
        """

    def each(self) -> Iterator[Mapping[str, Float32Array]]:
        """Each member's tensors as plain arrays, by name."""


class Task(ABC):
    """Named tensors to learn, data or none, and `losses`."""

    kind: ClassVar[str]
    """Name under which fedlearn registers tasks of this class."""

    unit: ClassVar[str] = "examples"
    """What a member is judged by, and what `work_per_member` counts."""

    data: Columns = MappingProxyType({})
    """Empty for a task without data."""
    held_out: Columns = MappingProxyType({})
    """Rows that nothing is trained on, with the columns of `data`."""
    batch_size: int = 1
    """Rows that a group is given."""
    scales: Mapping[str, float] = MappingProxyType({})
    """Factor on sigma and learning rate of the tensors whose name contains a key; the first key that fits counts."""
    reads: Mapping[str, str] = MappingProxyType({})
    """Tensors of which a row matters only to groups whose data name it: the column with the row numbers, by tensor."""
    settings: Mapping[str, Setting] = MappingProxyType({})
    """Settings of a run that suit the task, by key; whatever the run's own configuration says outranks them."""

    @property
    @abstractmethod
    def tensors(self) -> Mapping[str, Float32Array]:
        """What is learned, where it starts: float32, in a fixed order, equal on every machine."""

    @abstractmethod
    def members(self, weights: Float32Array, noise: Sequence[TensorNoise], *, n_groups: int) -> Members:
        """Members around `weights` [n_parameters], each with its noise, one entry a tensor of `layout`."""

    @abstractmethod
    def losses(self, members: Members, batch: Batch) -> Sequence[float] | Float32Array:
        """A number for each member, lower is better; what is not finite does not count."""

    @property
    def work_per_member(self) -> int:
        """Units that one member costs."""
        return self.batch_size

    @property
    def frozen(self) -> Columns:
        """Arrays that are not learned but must be the same on every machine, by name."""
        return {}

    @property
    def layout(self) -> ParameterLayout:
        """Where each tensor lies in the flat weights."""
        specs, column = [], 0
        for name, tensor in self.tensors.items():
            scale = next((scale for part, scale in self.scales.items() if part in name), 1.0)
            is_masked = name in self.reads
            specs.append(TensorSpec(name, tensor.shape, scale, column if is_masked else -1))
            column += tensor.shape[0] if is_masked else 0
        return ParameterLayout(tuple(specs))

    def use(self, device: Device, *, threads: int) -> None:  # noqa: B027 (most tasks have nothing to set)
        """Lets losses be computed there, with so many threads; 0 threads: all processors."""

    def report(self) -> str:
        """Lines that say how members are tried on this machine, and why; empty where there is but one way."""
        return ""

    def as_graph(self) -> bytes:
        """The task as data, which the kind `graph` makes a task of again. Raises ValueError where it is code only."""
        raise ValueError(f"a task of kind {self.kind} is code, which does not travel")

    def state_dict(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        """Its tensors with these weights, and what is not learned, by name, as safetensors."""
        tensors = {**self.layout.split(weights), **self.frozen}
        in_order = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
        return safetensors.numpy.save(in_order, {"format": "pt", **about})

    def show(self, loss: float) -> tuple[str, float]:
        """The mean loss as people read it: what it is called, and its value."""
        return "loss", loss

    def evaluate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:  # noqa: ARG002
        """Named figures of unperturbed weights on held-out data; empty where there are none."""
        return {}


def flat_weights(tensors: Mapping[str, Float32Array]) -> Float32Array:
    """The tensors one after another, [n_parameters]."""
    return np.concatenate([np.asarray(tensor, dtype=np.float32).reshape(-1) for tensor in tensors.values()])
