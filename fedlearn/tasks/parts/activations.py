"""Encodings of activations that cross a cut: as they are, in halves, or as differences to the unperturbed ones in a few
bits.

A member differs little from the unperturbed model, so its differences need fewer bits than its values for the same
ranking of losses; both sides hold the unperturbed values of the group, which are sent once, as `float32`.
"""

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

ActivationCodec = Literal["float32", "float16", "int8-delta", "int4-delta"]
CODECS: tuple[ActivationCodec, ...] = get_args(ActivationCodec)

BLOCK = 64
"""Differences that share a scale: neighbours in row-major order, whatever shape values have."""

Float32Array = NDArray[np.float32]
Shape = tuple[int, ...]

_BITS: Mapping[str, int] = MappingProxyType({"int8-delta": 8, "int4-delta": 4})
_SMALLEST = 1e-30
"""Differences below count as none; their scale would not be a normal number."""
_TO_FLOAT = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32)
_TO_FLOAT[128] = np.nan
# A byte holds two numbers, the first in its lower half; -8 stands for what is not finite, as -128 does among 8 bits.
_SIGNED = np.array([0, 1, 2, 3, 4, 5, 6, 7, np.nan, -7, -6, -5, -4, -3, -2, -1], dtype=np.float32)
_TO_TWO_FLOATS = np.stack([_SIGNED[np.arange(256) & 15], _SIGNED[np.arange(256) >> 4]], axis=1)


def needs_base(codec: ActivationCodec) -> bool:
    """Whether the unperturbed values of a group are sent too, once, as float32."""
    return codec in _BITS


def member_bytes(codec: ActivationCodec, shape: Shape) -> int:
    """Bytes of one member's value of this shape."""
    size = prod(shape)
    if codec not in _BITS:
        return size * (4 if codec == "float32" else 2)
    return -(-size * _BITS[codec] // 8) + 4 * -(-size // BLOCK)


def encode(codec: ActivationCodec, values: Float32Array, base: Float32Array | None = None) -> bytes:
    """Encodes the values of some members [members, ...]; `base` [...] are the unperturbed values, where the codec needs
    them.

    float16 has no finite number beyond 65504: what is larger arrives as infinite, and the member does not count.
    """
    if codec not in _BITS:
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(values, dtype="<f4" if codec == "float32" else "<f2").tobytes()
    assert base is not None, "differences to nothing"
    assert base.shape == values.shape[1:], "differences to values of another shape"
    with np.errstate(over="ignore", invalid="ignore"):
        differences = np.subtract(values, base, dtype=np.float32).reshape(len(values), -1)
    numbers, scales = _quantized(differences, _BITS[codec])
    return (numbers if _BITS[codec] == 8 else _packed(numbers)).tobytes() + scales.astype("<f4").tobytes()


def decode(
    codec: ActivationCodec, data: bytes, n_members: int, shape: Shape, base: Float32Array | None = None
) -> Float32Array:
    """Decodes the values of some members, [members, *shape].

    Raises:
        ValueError: the bytes are not so many members' values, or a scale is no scale.
    """
    expected = n_members * member_bytes(codec, shape)
    if len(data) != expected:
        raise ValueError(
            f"activations: expected {expected} bytes of {codec} for {n_members} members of {list(shape)}, "
            f"got {len(data)}; both seats must have one plan"
        )
    if codec not in _BITS:
        floats = np.frombuffer(data, "<f4" if codec == "float32" else "<f2")
        return floats.astype(np.float32, copy=False).reshape(n_members, *shape)
    assert base is not None, "differences to nothing"
    assert base.shape == shape, "differences to values of another shape"
    return _differences(data, _BITS[codec], n_members, prod(shape)).reshape(n_members, *shape) + base


def _quantized(differences: Float32Array, bits: int) -> tuple[NDArray[np.int8], Float32Array]:
    """Numbers [members, n] of `bits` bits and scales [members, blocks] of differences [members, n], which are
    overwritten."""
    n_members, size = differences.shape
    top, not_finite = (127, -128) if bits == 8 else (7, -8)
    n_blocks = -(-size // BLOCK)
    if size % BLOCK:
        differences = np.pad(differences, ((0, 0), (0, n_blocks * BLOCK - size)))
    blocks = differences.reshape(n_members, n_blocks, BLOCK)
    largest = np.maximum(blocks.max(axis=2), -blocks.min(axis=2))
    holes = None
    if not np.isfinite(largest).all():
        holes = ~np.isfinite(blocks)
        blocks[holes] = 0
        largest = np.abs(blocks).max(axis=2)
    factors = np.divide(top, largest, out=np.zeros_like(largest), where=largest > _SMALLEST)
    blocks *= factors[:, :, None]
    numbers = np.rint(blocks, out=blocks).astype(np.int8)
    if holes is not None:
        numbers[holes] = not_finite
    scales = np.where(factors > 0, largest / np.float32(top), np.float32(0))
    return numbers.reshape(n_members, -1)[:, :size], scales


def _packed(numbers: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Two numbers of 4 bits a byte, [members, half as many]."""
    if numbers.shape[1] % 2:
        numbers = np.pad(numbers, ((0, 0), (0, 1)))
    coded = np.ascontiguousarray(numbers).view(np.uint8)
    lower: NDArray[np.uint8] = coded[:, ::2] & np.uint8(15)
    return lower | coded[:, 1::2] << np.uint8(4)


def _differences(data: bytes, bits: int, n_members: int, size: int) -> Float32Array:
    """Decodes differences, [members, size]."""
    n_blocks = -(-size // BLOCK)
    scales = np.frombuffer(data, "<f4", offset=len(data) - 4 * n_members * n_blocks).reshape(n_members, n_blocks)
    is_scale = np.isfinite(scales) & (scales >= 0)
    if not is_scale.all():
        member, block = np.argwhere(~is_scale)[0]
        raise ValueError(
            f"activations: expected finite scales of at least 0, got {scales[member, block]} for block {block} of "
            f"member {member}"
        )
    coded = np.frombuffer(data, np.uint8, count=len(data) - scales.nbytes).reshape(n_members, -1)
    floats = np.zeros((n_members, n_blocks * BLOCK), dtype=np.float32)
    if bits == 8:
        np.take(_TO_FLOAT, coded, out=floats[:, :size], mode="clip")
    else:
        floats[:, :size] = _TO_TWO_FLOATS[coded].reshape(n_members, -1)[:, :size]
    with np.errstate(over="ignore"):
        floats.reshape(n_members, n_blocks, BLOCK)[...] *= scales[:, :, None]
    return floats[:, :size]
