"""How a model's named tensors lie in one flat float32 vector: the only address space of noise, optimizer and digest."""

import math
from functools import cached_property
from itertools import accumulate

import msgspec
import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]


class TensorSpec(msgspec.Struct, frozen=True):
    """One named tensor of the model.

    `scale` multiplies both its sigma and its step: a tensor with 0 never changes. A matrix takes low-rank noise,
    everything else one sign an element; a tensor of more than two dimensions, such as a convolution's kernel, is the
    matrix of its rows along the first. `mask_column` is the place of its first row in a group's row mask, -1 where no
    row is ever masked.
    """

    name: str
    shape: tuple[int, ...]
    scale: float = 1.0
    mask_column: int = -1

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of its noise; what is no matrix is one row."""
        return (self.shape[0], self.size // self.shape[0]) if self.is_matrix else (1, self.size)

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) > 1 and 1 < self.shape[0] < self.size


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
        return tuple(accumulate((tensor.size for tensor in self.tensors[:-1]), initial=0))

    @cached_property
    def row_lengths(self) -> NDArray[np.int64]:
        """Parameters of each row, all tensors in order; every element of a vector is a row of its own."""
        lengths = [
            np.full(*tensor.sides) if tensor.is_matrix else np.ones(tensor.size, dtype=np.int64)
            for tensor in self.tensors
        ]
        row_lengths = np.concatenate(lengths).astype(np.int64)
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
        rows = []
        for tensor, offset in zip(self.tensors, self.offsets, strict=True):
            rows.append((offset, *tensor.sides, rank if tensor.is_matrix else 0, tensor.mask_column))
        return np.array(rows, dtype=np.int64)
