"""The noise of members as tensors, and the perturbed tensors."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import LowRank, TensorNoise

Device = str | torch.device


class Factors(NamedTuple):
    """Noise, rows columns^T, on a matrix; a tensor of more dimensions is the matrix of its rows along the first."""

    rows: Tensor
    """The left factors [members, rows, rank]."""
    columns: Tensor
    """The right factors [members, columns, rank]."""

    def added_to(self, tensor: Tensor) -> Tensor:
        """The perturbed tensors, [members, *shape]."""
        n_members, n_rows, rank = self.rows.shape
        matrix = tensor.reshape(n_rows, self.columns.shape[1])
        if rank == 1:
            perturbed = torch.addcmul(matrix, self.rows, self.columns.mT)
        else:
            perturbed = torch.baddbmm(matrix.expand(n_members, -1, -1), self.rows, self.columns.mT)
        return perturbed.view(n_members, *tensor.shape)

    def times(self, factor: float) -> "Factors":
        """The noise multiplied by a factor."""
        return Factors(self.rows * factor, self.columns)

    def transposed(self) -> "Factors":
        """Noise on the transposed matrix."""
        return Factors(self.columns, self.rows)


class Shift(NamedTuple):
    """Noise with one number for each element of a tensor."""

    elements: Tensor
    """The noise [members, *shape of the tensor]."""

    def added_to(self, tensor: Tensor) -> Tensor:
        """The perturbed tensors, [members, *shape]."""
        return tensor + self.elements

    def times(self, factor: float) -> "Shift":
        """The noise multiplied by a factor."""
        return Shift(self.elements * factor)


Noise = Factors | Shift


def as_tensors(noise: Sequence[TensorNoise], device: Device) -> list[Noise]:
    """The same noise on a device; on the CPU it shares the arrays' memory."""
    return [
        Factors(_tensor(one.rows, device), _tensor(one.columns, device))
        if isinstance(one, LowRank)
        else Shift(_tensor(one.noise, device))
        for one in noise
    ]


def of_members(noise: Sequence[Noise], first: int, end: int) -> list[Noise]:
    """Views of the noise of members `first` to before `end`."""
    return [
        Factors(one.rows[first:end], one.columns[first:end])
        if isinstance(one, Factors)
        else Shift(one.elements[first:end])
        for one in noise
    ]


def number_of_members(noise: Sequence[Noise]) -> int:
    """Number of members that the noise is for."""
    return len(noise[0][0])


def _tensor(array: Float32Array, device: Device) -> Tensor:
    return torch.from_numpy(np.require(array, np.float32, ["C", "W"])).to(device)
