"""How a model's named tensors lie in one flat float32 vector: the only address space of noise, optimizer and digest.

Some tensors of a model, or rows of them, are a layout, too. They keep their addresses in the whole, so every machine
gives them the same noise and the same steps, whatever else it holds; the whole is the part of all tensors.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from operator import itemgetter

import msgspec
import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]


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
    number: int | None = None
    """In the whole model; None: its place in the layout."""
    first_row: int = 0
    """Of the whole tensor, along its first dimension."""

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of its noise; what is no matrix is one row."""
        return (self.shape[0], self.size // self.shape[0]) if self.is_matrix else (1, self.size)

    @property
    def n_rows(self) -> int:
        """Rows of an estimate: every element of what is no matrix is one of its own."""
        return self.shape[0] if self.is_matrix else self.size

    @cached_property
    def is_matrix(self) -> bool:
        return len(self.shape) > 1 and 1 < self.shape[0] < self.size

    def first_sign(self, rank: int) -> int:
        """Where its signs begin among those of the whole tensor: of its rows, or of its elements at rank 0."""
        # What is no matrix has one row, or rows of one element.
        if self.first_row == 0 or rank > 0:
            return self.first_row
        return self.first_row * (self.size // self.shape[0])

    def cut(self, number: int, rows: tuple[int, int] | None) -> "TensorSpec":
        """The tensor of this number as a part of its model has it: whole, or its rows (first, how many).

        Raises:
            ValueError: it has not these rows, or a matrix would be left with one.
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
    """Tensors in the order in which they lie in the flat vector, without gaps."""

    tensors: tuple[TensorSpec, ...]

    @cached_property
    def size(self) -> int:
        """Number of parameters."""
        return sum(tensor.size for tensor in self.tensors)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each tensor begins in the flat vector."""
        return tuple(accumulate((tensor.size for tensor in self.tensors), initial=0))[:-1]

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Of each tensor in the whole model: the address of its noise."""
        return tuple(i if tensor.number is None else tensor.number for i, tensor in enumerate(self.tensors))

    @cached_property
    def is_masked(self) -> bool:
        """Whether groups' row masks bear on its noise."""
        return any(tensor.mask_column >= 0 for tensor in self.tensors)

    @cached_property
    def row_lengths(self) -> NDArray[np.int64]:
        """Parameters of each row, all tensors in order; every element of a vector is a row of its own."""
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
        """Rows (offset, rows, columns, rank, mask column), as `es_core` wants them; vectors are one row of rank 0."""
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
        """Rows (number, first sign) in the whole model, beside those of the table."""
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

    def stretches(self, *, apart: bool) -> Sequence[tuple[tuple[float, bool], slice]]:
        """Where neighbours of one scale lie, with (scale, whether they are matrices).

        Matrices are stretches of their own where they take other steps and are `apart`; else the second is False.
        """
        return self._kinds_apart if apart else self._kinds_together

    @cached_property
    def _kinds_apart(self) -> list[tuple[tuple[float, bool], slice]]:
        return self._stretches([(tensor.scale, tensor.is_matrix) for tensor in self.tensors])

    @cached_property
    def _kinds_together(self) -> list[tuple[tuple[float, bool], slice]]:
        return self._stretches([(tensor.scale, False) for tensor in self.tensors])

    def _stretches(self, kinds: list[tuple[float, bool]]) -> list[tuple[tuple[float, bool], slice]]:
        found = []
        tensors = zip(kinds, self.offsets, self.tensors, strict=True)
        for kind, neighbours in groupby(tensors, key=itemgetter(0)):
            intervals = [(offset, offset + tensor.size) for _, offset, tensor in neighbours]
            found.append((kind, slice(intervals[0][0], intervals[-1][1])))
        return found

    def part(self, names: Iterable[str], rows: Mapping[str, tuple[int, int]] | None = None) -> "ParameterLayout":
        """The layout of the tensors of these names, in the order that they have here.

        Of a tensor that `rows` names, too, it has the rows (first, how many) along the first dimension. Rows from a
        multiple of 128 on are replayed faster than others: their random words need not be moved.

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
        """Where the part's tensors lie in a flat vector of this layout.

        Raises:
            ValueError: this layout does not hold them.
        """
        return self._found(part, [tensor.size for tensor in self.tensors], rank=0)

    def row_intervals(self, part: "ParameterLayout") -> list[slice]:
        """Where the rows of the part's tensors lie among those of `row_lengths`; neighbours are one interval.

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
        """Signs of rank 0 count elements, those of rank 1 rows."""
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
