"""Conversions between tensors and the arrays of graphs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlearn.graphs.graph import ITEM_BYTES, ArraySpec, Constant, DtypeName, GraphError

DTYPES: Mapping[DtypeName, torch.dtype] = {name: getattr(torch, name) for name in ITEM_BYTES}
NAMES: Mapping[torch.dtype, DtypeName] = {dtype: name for name, dtype in DTYPES.items()}

# numpy has no bfloat16, so an integer of the same two bytes stands for one.
_NUMPY_NAMES = {name: "int16" if name == "bfloat16" else name for name in ITEM_BYTES}


def to_array(tensor: Tensor) -> NDArray[Any]:
    """The tensor as an array in memory of its own; bfloat16 becomes int16 of the same bytes."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.int16)
    array: NDArray[Any] = tensor.numpy().copy()
    return array


def to_tensor(array: NDArray[Any], spec: ArraySpec) -> Tensor:
    """The array as a tensor in memory of its own.

    Raises:
        GraphError: the array has another shape or dtype than the graph names.
    """
    expected = _NUMPY_NAMES[spec.dtype]
    if array.shape != spec.shape or array.dtype.name != expected:
        raise GraphError(
            f"{spec.name!r}: expected {expected} {list(spec.shape)}, got {array.dtype.name} {list(array.shape)}; "
            "graph and arrays must come from one export"
        )
    tensor = torch.from_numpy(np.array(array, order="C"))
    return tensor.view(torch.bfloat16) if spec.dtype == "bfloat16" else tensor


def to_constant(array: ArraySpec, tensor: Tensor) -> Constant:
    """The tensor as a constant of a graph."""
    numbers = to_array(tensor)
    return Constant(array, numbers.astype(numbers.dtype.newbyteorder("<")).tobytes())


def of_constant(constant: Constant) -> Tensor:
    """The tensor of a graph's constant."""
    dtype = np.dtype(_NUMPY_NAMES[constant.array.dtype])
    numbers = np.frombuffer(constant.data, dtype.newbyteorder("<")).astype(dtype)
    return to_tensor(numbers.reshape(constant.array.shape), constant.array)


def spec_of(name: str, tensor: Tensor) -> ArraySpec:
    """The name and form of a tensor.

    Raises:
        GraphError: graphs do not support its dtype.
    """
    if tensor.dtype not in NAMES:
        raise GraphError(f"{name!r}: expected one of {', '.join(NAMES.values())}, got {tensor.dtype}")
    return ArraySpec(name, tuple(tensor.shape), NAMES[tensor.dtype])
