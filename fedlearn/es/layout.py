"""The layout of a model's named tensors in one flat float32 vector, by which noise, optimizer and digest address them.

Some tensors of a model, or rows of them, form a layout too. They keep their addresses in the whole, so every machine
gives them the same noise and the same steps, whatever else it holds. The whole is the part that has all tensors.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]
Statistic = Literal["mean", "deviation", "factor"]


class TensorSpec(msgspec.Struct, frozen=True, dict=True):
    """One named tensor of the model, or some of its rows.

    `scale` multiplies both its sigma and its step: a tensor with 0 never changes. A matrix takes low-rank noise,
    everything else one sign an element; a tensor of more than two dimensions, such as a convolution's kernel, is the
    matrix of its rows along the first. `mask_column` is the place of its first row in a group's row mask, -1 where no
    row is ever masked.
    """

    name: str
    shape: tuple[int, ...]
    scale: float = 1.0
    mask_column: int = -1
    n_hidden: int = 0
    """Number of hidden matrices that the tensor holds, one below the other, for optimizers to which a matrix is a
    whole; 0 for embeddings, heads, and what is no matrix. Negative where rows are a layer's inputs, as in `Conv1D` of
    transformers: so many matrices lie side by side, and are turned to take their steps."""
    number: int | None = None
    """The tensor's number in the whole model; None means its place in this layout."""
    first_row: int = 0
    """The first row that is held, counted along the first dimension of the whole tensor."""
    statistic: Statistic | None = None
    """What the tensor holds besides weights: mean or deviation of the numbers that members observe, or the factor that
    correlates their noise, all renewed by each Update; None for all that is trained or fixed."""

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of the tensor's noise; a tensor that is no matrix is one row."""
        return (self.shape[0], self.size // self.shape[0]) if self.is_matrix else (1, self.size)

    @property
    def n_rows(self) -> int:
        """Number of rows of an estimate; each element of a tensor that is no matrix is a row of its own."""
        return self.shape[0] if self.is_matrix else self.size

    @property
    def hidden_sides(self) -> tuple[int, int]:
        """Rows and columns of each of its hidden matrices, turned where its rows are inputs."""
        rows, columns = self.sides
        return (rows // self.n_hidden, columns) if self.n_hidden > 0 else (columns // -self.n_hidden, rows)

    @cached_property
    def is_matrix(self) -> bool:
        return len(self.shape) > 1 and 1 < self.shape[0] < self.size

    def first_sign(self, rank: int) -> int:
        """The number of its first sign among those of the whole tensor, which count rows, or elements at rank 0."""
        # A tensor that is no matrix has one row, or rows of one element.
        if self.first_row == 0 or rank > 0:
            return self.first_row
        return self.first_row * (self.size // self.shape[0])

    def cut(self, number: int, rows: tuple[int, int] | None) -> "TensorSpec":
        """The tensor as a part of its model has it: whole, or only `rows` (first row, number of rows).

        Raises:
            ValueError: the tensor lacks these rows, or a matrix would be left with one row.
        """
        if rows is None:
            return msgspec.structs.replace(self, number=number)
        first, count = rows
        # One row of a matrix would be a vector, with other noise.
        least = 2 if self.is_matrix else 1
        n_rows = self.shape[0] if self.shape else 0
        if first < 0 or count < least or first + count > n_rows:
            raise ValueError(
                f"rows of {self.name}: expected {least} or more of {n_rows}, got {count} from number {first} on"
            )
        return msgspec.structs.replace(
            self,
            shape=(count, *self.shape[1:]),
            mask_column=self.mask_column + first if self.is_matrix and self.mask_column >= 0 else self.mask_column,
            number=number,
            first_row=self.first_row + first,
        )


class ParameterLayout(msgspec.Struct, frozen=True, dict=True):
    """The tensors in the order in which they lie in the flat vector, without gaps."""

    tensors: tuple[TensorSpec, ...]

    @cached_property
    def size(self) -> int:
        """Number of parameters."""
        return sum(tensor.size for tensor in self.tensors)

    @property
    def n_trained(self) -> int:
        """Number of parameters that are weights of the model, and no statistics."""
        return sum(tensor.size for tensor in self.tensors if tensor.statistic is None)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The position of each tensor's first element in the flat vector."""
        return tuple(accumulate((tensor.size for tensor in self.tensors), initial=0))[:-1]

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The number of each tensor in the whole model, which is the address of its noise."""
        return tuple(i if tensor.number is None else tensor.number for i, tensor in enumerate(self.tensors))

    @cached_property
    def is_masked(self) -> bool:
        """Whether row masks of groups affect the noise of any tensor."""
        return any(tensor.mask_column >= 0 for tensor in self.tensors)

    @cached_property
    def statistics(self) -> Mapping[Statistic, slice]:
        """The intervals of the tensors that are neither trained nor fixed."""
        return {
            tensor.statistic: slice(offset, offset + tensor.size)
            for tensor, offset in zip(self.tensors, self.offsets, strict=True)
            if tensor.statistic is not None
        }

    @property
    def is_correlated(self) -> bool:
        """Whether a factor correlates the noise of members."""
        return "factor" in self.statistics

    @property
    def factor_shape(self) -> tuple[int, ...]:
        """The shape of the factor that correlates noise; empty without one."""
        return next((tensor.shape for tensor in self.tensors if tensor.statistic == "factor"), ())

    @cached_property
    def searched(self) -> "ParameterLayout":
        """The tensors that members perturb."""
        return self.part(tensor.name for tensor in self.tensors if tensor.scale != 0.0)

    @property
    def n_observed(self) -> int:
        """Number of numbers in an observation whose moments volunteers report; 0: they report none."""
        return sum(tensor.size for tensor in self.tensors if tensor.statistic == "mean")

    @cached_property
    def row_lengths(self) -> NDArray[np.int64]:
        """The number of parameters in each row of all tensors, in order; each element of a vector is a row of its
        own."""
        lengths = [
            np.full(tensor.n_rows, tensor.size // max(tensor.n_rows, 1), dtype=np.int64) for tensor in self.tensors
        ]
        row_lengths = np.concatenate([np.zeros(0, dtype=np.int64), *lengths])
        row_lengths.flags.writeable = False
        return row_lengths

    def split(self, flat: Float32Array) -> dict[str, Float32Array]:
        """Views of the tensors of a flat vector [size], by name, in their shapes."""
        return {
            tensor.name: flat[offset : offset + tensor.size].reshape(tensor.shape)
            for tensor, offset in zip(self.tensors, self.offsets, strict=True)
        }

    def table(self, rank: int) -> NDArray[np.int64]:
        """The table that `es_core` reads: (offset, rows, columns, rank, mask column); a vector is one row of rank 0."""
        if rank not in self._tables:
            rows = []
            for tensor, offset in zip(self.tensors, self.offsets, strict=True):
                rows.append((offset, *tensor.sides, rank if tensor.is_matrix else 0, tensor.mask_column))
            table = np.array(rows, dtype=np.int64).reshape(-1, 5)
            table.flags.writeable = False
            self._tables[rank] = table
        return self._tables[rank]

    @cached_property
    def _tables(self) -> dict[int, NDArray[np.int64]]:
        return {}

    def places(self, rank: int) -> NDArray[np.int64]:
        """The number and the first sign of each tensor in the whole model, one row for each row of the table."""
        return self._low_rank_places if rank > 0 else self._full_rank_places

    @cached_property
    def _low_rank_places(self) -> NDArray[np.int64]:
        return self._places(1)

    @cached_property
    def _full_rank_places(self) -> NDArray[np.int64]:
        return self._places(0)

    def _places(self, rank: int) -> NDArray[np.int64]:
        rows = [(number, tensor.first_sign(rank)) for number, tensor in zip(self.numbers, self.tensors, strict=True)]
        places = np.array(rows, dtype=np.int64).reshape(-1, 2)
        places.flags.writeable = False
        return places

    def stretches(self, *, apart: bool, with_hidden: bool = True) -> Sequence[tuple[tuple[float, bool], slice]]:
        """The intervals of neighbouring tensors of one scale, each with (scale, whether the tensors are matrices).

        With `apart`, matrices and other tensors are in different intervals; without it, the second value is False.
        Without `with_hidden`, tensors that hold hidden matrices are in none.
        """
        if (apart, with_hidden) not in self._stretches:
            self._stretches[apart, with_hidden] = self._found_stretches(apart=apart, with_hidden=with_hidden)
        return self._stretches[apart, with_hidden]

    @cached_property
    def _stretches(self) -> dict[tuple[bool, bool], list[tuple[tuple[float, bool], slice]]]:
        return {}

    def _found_stretches(self, *, apart: bool, with_hidden: bool) -> list[tuple[tuple[float, bool], slice]]:
        joined: list[tuple[tuple[float, bool], slice]] = []
        for tensor, offset in zip(self.tensors, self.offsets, strict=True):
            kind = tensor.scale, apart and tensor.is_matrix
            interval = slice(offset, offset + tensor.size)
            if tensor.n_hidden and not with_hidden:
                continue
            if joined and joined[-1][0] == kind and joined[-1][1].stop == offset:
                joined[-1] = kind, slice(joined[-1][1].start, interval.stop)
            else:
                joined.append((kind, interval))
        return joined

    @cached_property
    def hidden(self) -> Sequence[tuple[TensorSpec, slice]]:
        """The tensors with hidden matrices, each with its interval."""
        return [
            (tensor, slice(offset, offset + tensor.size))
            for tensor, offset in zip(self.tensors, self.offsets, strict=True)
            if tensor.n_hidden
        ]

    def part(self, names: Iterable[str], rows: Mapping[str, tuple[int, int]] | None = None) -> "ParameterLayout":
        """The layout of the tensors with these names, in the order that they have here.

        A tensor that `rows` names is cut to these rows (first row, number of rows) of its first dimension. Rows that
        begin at a multiple of 128 are replayed faster than others, because their random words need not be moved.

        Raises:
            ValueError: there is no such tensor, or it has no such rows.
        """
        wanted, rows = set(names), rows or {}
        if unknown := sorted((wanted - {tensor.name for tensor in self.tensors}) | (rows.keys() - wanted)):
            raise ValueError(f"part: expected tensors of the layout, and rows of those, got {', '.join(unknown)}")
        kept = zip(self.tensors, self.numbers, strict=True)
        return ParameterLayout(
            tuple(tensor.cut(number, rows.get(tensor.name)) for tensor, number in kept if tensor.name in wanted)
        )

    def intervals(self, part: "ParameterLayout") -> list[slice]:
        """The intervals of the part's tensors in a flat vector of this layout.

        Raises:
            ValueError: this layout does not hold them.
        """
        return self._found(part, [tensor.size for tensor in self.tensors], rank=0)

    def row_intervals(self, part: "ParameterLayout") -> list[slice]:
        """The intervals of the part's rows among those of `row_lengths`; neighbours are one interval.

        Raises:
            ValueError: this layout does not hold them.
        """
        joined: list[slice] = []
        for interval in self._found(part, [tensor.n_rows for tensor in self.tensors], rank=1):
            if joined and joined[-1].stop == interval.start:
                joined[-1] = slice(joined[-1].start, interval.stop)
            else:
                joined.append(interval)
        return joined

    def _found(self, part: "ParameterLayout", lengths: list[int], *, rank: int) -> list[slice]:
        """The intervals of the part's tensors; rank 0 counts elements, rank 1 counts rows."""
        begins = tuple(accumulate(lengths, initial=0))[:-1]
        own = {
            number: (tensor.first_sign(rank), begin, length)
            for number, tensor, begin, length in zip(self.numbers, self.tensors, begins, lengths, strict=True)
        }
        found = []
        for number, piece in zip(part.numbers, part.tensors, strict=True):
            first_sign, begin, n_held = own.get(number, (0, 0, 0))
            first = piece.first_sign(rank) - first_sign
            last = first + (piece.n_rows if rank else piece.size)
            if not 0 <= first <= last <= n_held:
                raise ValueError(f"part: expected tensors of the layout, got {piece.name} with rows that it has not")
            found.append(slice(begin + first, begin + last))
        return found
