"""Sums of gradients whose parts are made by different machines: each sums over the tensors that it holds.

A tensor that one machine holds is rounded there, as in a sum of the whole. What several machines add to, such as a head
that is tied to an embedding, travels exactly, as integers, and is rounded where all of it is known, by the same random
numbers. So the whole sum is the same to the bit, however the tensors are divided.
"""

from collections.abc import Sequence, Set

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.sums.estimate import (
    CodedEstimate,
    Dither,
    decode_estimate,
    encode_exactly,
    estimate_of_rows,
)

Int64Array = NDArray[np.int64]
Rows = tuple[int, int]
"""The number of a tensor in the whole model, and its first row that is held."""

_GREATEST = 2**31 - 1


def rows_of(layout: ParameterLayout) -> list[Rows]:
    """What each tensor of a layout is in the whole."""
    return [(number, tensor.first_row) for number, tensor in zip(layout.numbers, layout.tensors, strict=True)]


def shared_rows(parts: Sequence[ParameterLayout]) -> frozenset[Rows]:
    """The tensors that several parts hold."""
    held = [rows for part in parts for rows in rows_of(part)]
    return frozenset(rows for rows in held if held.count(rows) > 1)


def encode_part(
    whole: ParameterLayout, part: ParameterLayout, total: Int64Array, dither: Dither, shared: Set[Rows]
) -> CodedEstimate:
    """Encodes the sum [n_parameters] of a part; `dither` is that of the whole, of whose tensors some are `shared`."""
    pieces: list[CodedEstimate] = []
    for rows, tensor, own, its in zip(rows_of(part), part.tensors, part.offsets, whole.intervals(part), strict=True):
        layout, numbers = ParameterLayout((tensor,)), total[own : own + tensor.size]
        if rows in shared:
            pieces.append(encode_exactly(layout, np.clip(numbers, -_GREATEST, _GREATEST)))
        else:
            pieces.append(dither.encode(layout, numbers, its.start))
    return _joined(pieces)


def join_parts(
    whole: ParameterLayout, parts: Sequence[tuple[ParameterLayout, CodedEstimate]], dither: Dither
) -> CodedEstimate:
    """The sum of the whole, of which these are the sums of parts.

    Raises:
        ValueError: a sum is of another part, rounded where it is shared, exact where it is not, or a tensor is missing.
    """
    shared = shared_rows([part for part, _ in parts])
    found: dict[Rows, list[tuple[TensorSpec, slice, CodedEstimate]]] = {}
    for part, coded in parts:
        check_part(part, coded, shared)
        for rows, tensor, its, piece in zip(
            rows_of(part), part.tensors, whole.intervals(part), _pieces(part, coded), strict=True
        ):
            found.setdefault(rows, []).append((tensor, its, piece))
    pieces: list[CodedEstimate] = []
    for rows in sorted(found):
        (tensor, its, piece), *others = found[rows]
        if others:
            layout = ParameterLayout((tensor,))
            total = sum(decode_estimate(layout, one).astype(np.int64) for _, _, one in found[rows])
            piece = dither.encode(layout, np.asarray(total, dtype=np.int64), its.start)
        pieces.append(piece)
    joined = _joined(pieces)
    decode_estimate(whole, joined)
    return joined


def check_part(part: ParameterLayout, coded: CodedEstimate, shared: Set[Rows]) -> None:
    """Checks that a sum is one of this part, exact where tensors are shared and nowhere else.

    Raises:
        ValueError: it is not.
    """
    decode_estimate(part, coded)
    for rows, tensor, piece in zip(rows_of(part), part.tensors, _pieces(part, coded), strict=True):
        if piece.is_exact != (rows in shared):
            expected, got = ("exact", "rounded") if rows in shared else ("rounded", "exact")
            raise ValueError(f"estimate of {tensor.name}: expected {expected} rows, got {got} ones")


def _pieces(part: ParameterLayout, coded: CodedEstimate) -> list[CodedEstimate]:
    """The rows of each tensor."""
    ends = np.cumsum([tensor.n_rows for tensor in part.tensors]).tolist()
    return [
        estimate_of_rows(part, [slice(end - tensor.n_rows, end)], coded)
        for end, tensor in zip(ends, part.tensors, strict=True)
    ]


def _joined(pieces: Sequence[CodedEstimate]) -> CodedEstimate:
    return CodedEstimate(
        np.concatenate([piece.numbers for piece in pieces]), np.concatenate([piece.shifts for piece in pieces])
    )
