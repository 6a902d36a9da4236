from collections.abc import Sequence

import numpy as np
import pytest

from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.sums.estimate import CodedEstimate, Dither, decode_estimate
from fedlearn.es.sums.parts import encode_part, join_parts, rows_of, shared_rows

WHOLE = ParameterLayout((TensorSpec("tied", (6, 5)), TensorSpec("bias", (4,)), TensorSpec("last", (3, 7))))
FIRST, LAST = WHOLE.part(["tied", "bias"]), WHOLE.part(["tied", "last"])
SHARED = shared_rows([FIRST, LAST])


def sums(part: ParameterLayout, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(-(2**26), 2**26, part.size)


def coded(part: ParameterLayout, seed: int, bits: int = 8) -> tuple[ParameterLayout, CodedEstimate]:
    return part, encode_part(WHOLE, part, sums(part, seed), Dither(9, 3, 0, bits=bits), SHARED)


def joined(parts: Sequence[tuple[ParameterLayout, CodedEstimate]], bits: int = 8) -> CodedEstimate:
    return join_parts(WHOLE, parts, Dither(9, 3, 0, bits=bits))


@pytest.mark.parametrize("bits", [4, 8])
def test_parts_join_to_the_sum_of_the_whole_to_the_bit(bits: int) -> None:
    total = np.zeros(WHOLE.size, dtype=np.int64)
    for part, seed in ((FIRST, 1), (LAST, 2)):
        for interval, begin, tensor in zip(WHOLE.intervals(part), part.offsets, part.tensors, strict=True):
            total[interval] += sums(part, seed)[begin : begin + tensor.size]
    expected = Dither(9, 3, 0, bits=bits).encode(WHOLE, total)
    got = joined([coded(FIRST, 1, bits), coded(LAST, 2, bits)], bits)
    assert got.numbers.tobytes() == expected.numbers.tobytes()
    assert got.shifts.tobytes() == expected.shifts.tobytes()
    assert not got.is_exact


def test_rows_of_a_tensor_join_as_the_tensor() -> None:
    upper = WHOLE.part(["tied", "bias"], {"tied": (0, 2)})
    lower = WHOLE.part(["tied", "last"], {"tied": (2, 4)})
    assert shared_rows([upper, lower]) == frozenset()
    total, dither = sums(WHOLE, 3), Dither(9, 3, 0, bits=8)
    parts = [
        (part, encode_part(WHOLE, part, np.concatenate([total[i] for i in WHOLE.intervals(part)]), dither, frozenset()))
        for part in (lower, upper)
    ]
    expected = decode_estimate(WHOLE, dither.encode(WHOLE, total))
    np.testing.assert_array_equal(decode_estimate(WHOLE, joined(parts)), expected)


def test_what_several_parts_hold_is_known_by_its_rows() -> None:
    assert rows_of(LAST) == [(0, 0), (2, 0)]
    assert frozenset({(0, 0)}) == SHARED
    assert shared_rows([FIRST]) == frozenset()


def test_sums_beyond_32_bits_are_cut() -> None:
    huge = np.full(FIRST.size, 2**60)
    _, part = FIRST, encode_part(WHOLE, FIRST, huge, Dither(9, 3, 0, bits=8), SHARED)
    assert decode_estimate(FIRST, part)[0] == 2**31 - 1


def test_a_sum_of_another_part_and_a_missing_one_are_refused() -> None:
    with pytest.raises(ValueError, match="expected one a row"):
        joined([coded(FIRST, 1), (LAST, coded(FIRST, 1)[1])])
    bias = WHOLE.part(["bias"])
    with pytest.raises(ValueError, match=r"expected one a row|expected 55 bytes"):
        joined([(bias, encode_part(WHOLE, bias, sums(bias, 1), Dither(9, 3, 0, bits=8), frozenset()))])


def test_what_is_shared_must_be_exact_and_nothing_else_may() -> None:
    rounded = encode_part(WHOLE, FIRST, sums(FIRST, 1), Dither(9, 3, 0, bits=8), frozenset())
    with pytest.raises(ValueError, match="estimate of tied: expected exact rows, got rounded ones"):
        joined([(FIRST, rounded), coded(LAST, 2)])
    exact = encode_part(WHOLE, LAST, sums(LAST, 1), Dither(9, 3, 0, bits=8), SHARED | {(2, 0)})
    with pytest.raises(ValueError, match="estimate of last: expected rounded rows, got exact ones"):
        joined([coded(FIRST, 1), (LAST, exact)])
