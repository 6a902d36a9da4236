"""Digests: a few bytes that tell whether two machines hold the same weights, to the bit.

Source: BLAKE3, https://github.com/BLAKE3-team/BLAKE3-specs; a tree of hashes, so that threads share a large tensor.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from blake3 import blake3

from fedlearn.es.layout import Float32Array, ParameterLayout

DIGEST_BYTES = 8
TENSOR_DIGEST_BYTES = 16

_SEVERAL_THREADS_BYTES = 2**20
"""Bytes of one array below which starting threads takes longer than hashing."""


def tensor_digests(
    layout: ParameterLayout, weights: Float32Array, slots: Mapping[str, Float32Array], *, threads: int
) -> list[bytes]:
    """The digest (16 bytes) of each tensor: of its interval of the weights, then of each slot in the order of their
    names.

    The numbers are hashed as little-endian float32. 0 threads means as many as there are processors.
    """
    sizes = zip(layout.tensors, layout.offsets, strict=True)
    return _digests([slice(offset, offset + tensor.size) for tensor, offset in sizes], weights, slots, threads)


def part_digests(
    layout: ParameterLayout,
    parts: Sequence[ParameterLayout],
    weights: Float32Array,
    slots: Mapping[str, Float32Array],
    numbers: Mapping[str, float],
    *,
    threads: int,
) -> list[bytes]:
    """The digests (8 bytes) of replicas that each hold one of these parts of the layout only.

    No interval is hashed twice.

    Raises:
        ValueError: a part is not of the layout.
    """
    places = [[(interval.start, interval.stop) for interval in layout.intervals(part)] for part in parts]
    distinct = list(dict.fromkeys(place for of_part in places for place in of_part))
    hashed = _digests([slice(*place) for place in distinct], weights, slots, threads)
    found = dict(zip(distinct, hashed, strict=True))
    return [run_digest([found[place] for place in of_part], numbers) for of_part in places]


def run_digest(tensors: Sequence[bytes], numbers: Mapping[str, float]) -> bytes:
    """The digest (8 bytes) of the tensors' digests, then of the optimizer's numbers by name, as float64."""
    ordered = np.array([numbers[name] for name in sorted(numbers)], dtype="<f8")
    return blake3(b"".join(tensors) + ordered.tobytes()).digest(DIGEST_BYTES)


def _digests(
    intervals: Sequence[slice], weights: Float32Array, slots: Mapping[str, Float32Array], threads: int
) -> list[bytes]:
    arrays = [weights, *(slots[name] for name in sorted(slots))]
    views = [array.astype("<f4", copy=False).view(np.uint8).data for array in arrays]
    width = weights.itemsize
    return [
        _hashed([view[width * interval.start : width * interval.stop] for view in views], threads)
        for interval in intervals
    ]


def _hashed(pieces: Sequence[memoryview], threads: int) -> bytes:
    is_large = pieces[0].nbytes >= _SEVERAL_THREADS_BYTES
    digest = blake3(max_threads=(threads or blake3.AUTO) if is_large else 1)
    for piece in pieces:
        digest.update(piece)
    return digest.digest(TENSOR_DIGEST_BYTES)
