"""Flat float32 vectors as safetensors files of named tensors, written without a copy of them.

Source: the format, https://huggingface.co/docs/safetensors: the length of a header, the header as JSON, then bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import safe_open

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.storage.durable import StorageError, write_durably

OPTIMIZER = "optimizer/"
"""Prefix of the names of an optimizer's slots, which are flat and no tensors of the model."""

_METADATA = "__metadata__"
_ALIGNMENT = 8


def write_tensors(
    path: Path,
    layout: ParameterLayout,
    weights: Float32Array,
    metadata: Mapping[str, str],
    *,
    slots: Mapping[str, Float32Array] | None = None,
) -> None:
    """Writes the weights as the tensors of the layout, and each slot as one tensor, which may be shorter.

    Raises:
        StorageError: a tensor has a name that the file needs itself, or the disk refuses.
    """
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    lengths = {name: slot.size for name, slot in (slots or {}).items()}
    for name, shape in _entries(layout, lengths):
        begin, end = end, end + 4 * int(np.prod(shape, dtype=np.int64))
        if name in header:
            raise StorageError(f"{path}: expected another name than {name!r} for a tensor; rename it in the model")
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": (begin, end)}
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    arrays = [np.ascontiguousarray(array, "<f4") for array in (weights, *(slots or {}).values())]
    assert sum(array.nbytes for array in arrays) == end, "weights as long as the layout"
    write_durably(path, len(encoded).to_bytes(8, "little") + encoded, *(array.view(np.uint8).data for array in arrays))


def read_tensors(path: Path, layout: ParameterLayout) -> tuple[Float32Array, dict[str, Float32Array]]:
    """The weights as one flat vector, and the slots by name.

    Raises:
        ValueError: the tensors are not those of the layout; no memory has been allocated for them.
        SafetensorError: the file is none, or lacks a tensor of the layout.
    """
    with safe_open(path, framework="numpy") as file:
        slots = sorted(set(file.keys()) - {tensor.name for tensor in layout.tensors})
        if foreign := [name for name in slots if not name.startswith(OPTIMIZER)]:
            raise ValueError(f"{foreign[0]}: expected a tensor of the layout")
        names = [name.removeprefix(OPTIMIZER) for name in slots]
        lengths = {name: _length(file.get_slice(f"{OPTIMIZER}{name}").get_shape(), layout.size) for name in names}
        for name, shape in _entries(layout, lengths):
            found = file.get_slice(name)
            if (found.get_dtype(), tuple(found.get_shape())) != ("F32", shape):
                raise ValueError(f"{name}: expected F32 {list(shape)}, got {found.get_dtype()} {found.get_shape()}")
        weights = np.empty(layout.size, np.float32)
        for name, part in layout.split(weights).items():
            part[...] = file.get_tensor(name)
        return weights, {name: file.get_tensor(f"{OPTIMIZER}{name}") for name in names}


def _length(shape: Sequence[int], most: int) -> int:
    """The length of a slot of this shape, `most` where it is another's."""
    return min(shape[0], most) if len(shape) == 1 else most


def _entries(layout: ParameterLayout, slots: Mapping[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the tensors, and of slots of these lengths."""
    for tensor in layout.tensors:
        yield tensor.name, tensor.shape
    for name, length in slots.items():
        yield f"{OPTIMIZER}{name}", (length,)
