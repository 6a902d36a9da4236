from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import es_core

KnownAnswers = Callable[[str], list[dict[str, list[str]]]]

LOW = 0xFFFFFFFF
NOISE, WINDOWS, DROPOUT = 0, 1, 2
"""Domains: the last word of the key."""
ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))


def threefry(key: list[int], counter: list[int]) -> list[int]:
    """Threefry4x32-20 in plain Python.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    schedule = [*key, 0x1BD11BDA ^ key[0] ^ key[1] ^ key[2] ^ key[3]]
    x = [(a + b) & LOW for a, b in zip(counter, schedule[:4], strict=True)]
    for n_round in range(20):
        partners = (1, 3) if n_round % 2 == 0 else (3, 1)
        for at, partner, by in zip((0, 2), partners, ROTATIONS[n_round % 8], strict=True):
            x[at] = (x[at] + x[partner]) & LOW
            rotated = (x[partner] << by | x[partner] >> (32 - by)) & LOW
            x[partner] = rotated ^ x[at]
        if n_round % 4 == 3:
            n_injection = n_round // 4 + 1
            x = [(word + schedule[(n_injection + i) % 5]) & LOW for i, word in enumerate(x)]
            x[3] = (x[3] + n_injection) & LOW
    return x


def low_high(number: int) -> list[int]:
    return [number & LOW, number >> 32]


def sign_at(seed: int, step: int, member: int, tensor: int, factor: int, offset: int) -> int:
    block = [offset // 128, tensor * 65536 + factor, *low_high(member)]
    word = threefry([*low_high(seed), step, NOISE], block)[offset // 32 % 4]
    return -1 if word >> offset % 32 & 1 else 1


def packed(signs: NDArray[np.int8]) -> list[str]:
    """32 signs a word, the lowest bit first, in hexadecimal."""
    bits = np.zeros(-(-len(signs) // 32) * 32, dtype=np.uint8)
    bits[: len(signs)] = signs < 0
    return [f"{word:08x}" for word in np.packbits(bits, bitorder="little").view("<u4")]


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (0, [0x9C6CA96A, 0xE17EAE66, 0xFC10ECD4, 0x5256A7D8]),
        (LOW, [0x2A881696, 0x57012287, 0xF6C7446E, 0xA16A6732]),
    ],
)
def test_plain_threefry_gives_the_published_answers_of_random123(word: int, answer: list[int]) -> None:
    assert threefry([word] * 4, [word] * 4) == answer


def test_noise_has_the_known_answers(known_answers: KnownAnswers) -> None:
    for answer in known_answers("noise.txt"):
        keys = ("seed", "step", "member", "tensor", "factor", "offset", "count")
        assert packed(es_core.sign_noise(*(int(answer[key][0]) for key in keys))) == answer["signs"]


def test_random_words_have_the_known_answers(known_answers: KnownAnswers) -> None:
    for answer in known_answers("random_words.txt"):
        keys = ("seed", "step", "first_stream", "n_streams", "count")
        words = es_core.random_words(*(int(answer[key][0]) for key in keys))
        assert words.shape == (int(answer["n_streams"][0]), int(answer["count"][0]))
        assert [f"{word:08x}" for word in words.reshape(-1)] == answer["words"]


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 65535),
    st.integers(0, 65535),
    st.integers(0, 2**36),
)
def test_noise_equals_plain_threefry(seed: int, step: int, member: int, tensor: int, factor: int, offset: int) -> None:
    signs = es_core.sign_noise(seed, step, member, tensor, factor, offset, 40)
    assert signs.tolist() == [
        sign_at(seed, step, member, tensor, factor, place) for place in range(offset, offset + 40)
    ]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**63))
def test_random_words_equal_plain_threefry(seed: int, step: int, stream: int) -> None:
    key = [*low_high(seed), step, WINDOWS]
    words = [word for block in range(10) for word in threefry(key, [block, 0, *low_high(stream)])]
    assert es_core.random_words(seed, step, stream, 1, 39).tolist() == [words[:39]]  # two at once of 16, and a rest
    for offset in range(4):
        assert es_core.random_words(seed, step, stream, 1, 23, offset).tolist() == [words[offset : offset + 23]]


def test_random_words_from_far_on_equal_plain_threefry() -> None:
    expected = threefry([1, 0, 2, WINDOWS], [2**32 - 1, 0, 3, 0])
    assert es_core.random_words(1, 2, 3, 1, 3, 2**34 - 3).tolist() == [expected[1:]]
    assert es_core.random_words(1, 2, 3, 2, 5, 7)[0].tolist() == es_core.random_words(1, 2, 3, 1, 12)[0, 7:].tolist()


def plain_dropout_mask(seed: int, count: int, kept: float) -> list[float]:
    """A mask of dropout as `noise.h` describes it, in plain Python."""
    found = []
    for first in range(0, count, 128):
        blocks = [threefry([*low_high(seed), 0, DROPOUT], [first // 8 + lane, 0, 0, 0]) for lane in range(16)]
        for half in range(8):
            found += [block[half // 2] >> 16 * (half % 2) & 0xFFFF for block in blocks]
    return [float(np.float32(1 / kept)) if number < round(kept * 65536) else 0.0 for number in found[:count]]


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("count", [0, 1, 127, 128, 300])
def test_masks_of_dropout_equal_plain_threefry(count: int) -> None:
    for seed, kept in ((2**63 + 5, 0.9), (3, 0.25), (7, 1e-9)):
        mask = es_core.dropout_mask(seed, count, kept)
        assert mask.dtype == np.float32
        assert mask.tolist() == plain_dropout_mask(seed, count, kept)


def test_masks_of_dropout_keep_all_none_or_their_share() -> None:
    assert es_core.dropout_mask(1, 1000, 1.0).tolist() == [1.0] * 1000
    assert es_core.dropout_mask(1, 1000, 0.0).tolist() == [0.0] * 1000
    n = 400_000
    masks = [es_core.dropout_mask(seed, n, 0.8) for seed in (1, 2)]
    for mask in masks:
        assert abs(float((mask != 0).mean()) - 0.8) < 5 * (0.8 * 0.2 / n) ** 0.5
    centred = [mask - 1 for mask in masks]  # whose variance is 1 / 0.8 - 1
    assert abs(float((centred[0] * centred[1]).mean())) < 5 * 0.25 / n**0.5
    assert abs(float((centred[0][1:] * centred[0][:-1]).mean())) < 5 * 0.25 / n**0.5


@pytest.mark.parametrize(("count", "kept"), [(-1, 0.5), (2**31 + 1, 0.5), (4, -0.1), (4, 1.1), (4, float("nan"))])
def test_bad_masks_of_dropout_are_refused(count: int, kept: float) -> None:
    with pytest.raises(ValueError, match=r"expected 0 to 2\^31 numbers and a share from 0 to 1"):
        es_core.dropout_mask(1, count, kept)


@pytest.mark.usefixtures("isa")
def test_every_instruction_set_makes_the_same_noise() -> None:
    n = 1000
    vector = np.array([[0, 1, n, 0, -1]])
    for member in (0, 5, 2**63):
        of_one_member = es_core.estimate_gradient(
            vector,
            n,
            seed=2**63 + 1,
            step=9,
            group_size=1,
            spans=[(member, 1)],
            utilities=np.array([1], dtype=np.int8),
            row_masks=None,
        )
        np.testing.assert_array_equal(of_one_member, es_core.sign_noise(2**63 + 1, 9, member, 0, 0, 0, n))


def test_noise_is_balanced_and_its_members_tensors_and_factors_are_unrelated() -> None:
    n = 100_000
    addresses = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]  # member, tensor, factor
    signs = [es_core.sign_noise(1, 1, *address, 0, n).astype(np.int64) for address in addresses]
    covariance = np.array([[a @ b for a in signs] for b in signs]) / n
    limit = 5 / n**0.5  # five standard deviations
    assert np.abs(covariance - np.eye(len(signs))).max() < limit
    assert max(abs(float(s.mean())) for s in signs) < limit


def test_bad_addresses_are_refused() -> None:
    with pytest.raises(ValueError, match="a factor below 65536"):
        es_core.sign_noise(0, 0, 0, 65536, 0, 0, 1)
    with pytest.raises(ValueError, match="a count of zero or more, got 0, 0, -1"):
        es_core.sign_noise(0, 0, 0, 0, 0, 0, -1)
    with pytest.raises(ValueError, match="n_streams, count"):
        es_core.random_words(0, 0, 0, 1, -1)


def factors_of(*rows: tuple[int, int, int]) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


UNEVEN = factors_of((0, 0, 1), (0, 1, 127), (3, 4, 128), (65535, 65535, 129), (2, 0, 1000), (2, 3, 64))


def signs_one_by_one(
    first_member: int, n_members: int, factors: NDArray[np.int64], *, antithetic: bool
) -> NDArray[np.float32]:
    rows = []
    for member in range(first_member, first_member + n_members):
        is_mirror = antithetic and member % 2 == 1
        row = []
        for tensor, factor, length in factors.tolist():
            signs = es_core.sign_noise(2**63 + 1, 9, member - is_mirror, tensor, factor, 0, length)
            row.append(-signs if is_mirror and factor % 2 == 0 else signs)
        rows.append(np.concatenate(row))
    return np.array(rows, dtype=np.float32)


def test_signs_of_members_have_the_known_answers(known_answers: KnownAnswers) -> None:
    for answer in known_answers("noise.txt"):
        seed, step, member, tensor, factor, offset, count = (
            int(answer[key][0]) for key in ("seed", "step", "member", "tensor", "factor", "offset", "count")
        )
        if offset <= 2**31:
            first = np.array([offset])
            signs = es_core.member_signs(seed, step, member, 1, factors_of((tensor, factor, count)), None, first)
            assert packed(signs[0].astype(np.int8)) == answer["signs"]


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("first_member", [0, 5, 2**32 - 4, 2**64 - 33])
def test_signs_of_members_are_those_drawn_one_by_one(first_member: int, antithetic: bool, threads: int) -> None:
    for n_members in (1, 2, 33):
        signs = es_core.member_signs(
            2**63 + 1, 9, first_member, n_members, UNEVEN, antithetic=antithetic, threads=threads
        )
        assert signs.dtype == np.float32
        expected = signs_one_by_one(first_member, n_members, UNEVEN, antithetic=antithetic)
        np.testing.assert_array_equal(signs, expected)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_the_signs_of_large_factors(threads: int) -> None:
    # Threads take 2048 blocks of 128 signs at once: in the first, the second and the last factor of some member.
    factors = factors_of((0, 0, 200_001), (1, 0, 130_000), (1, 1, 77), (2, 1, 100_000))
    signs = es_core.member_signs(2**63 + 1, 9, 7, 5, factors, antithetic=True, threads=threads)
    np.testing.assert_array_equal(signs, signs_one_by_one(7, 5, factors, antithetic=True))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("antithetic", [False, True])
def test_each_factor_is_multiplied_by_its_scale(antithetic: bool) -> None:
    scales = np.array([0.1, -3.0, 0.0, 1e-42, np.inf, 1.0], dtype=np.float32)
    signs = es_core.member_signs(5, 3, 1, 9, UNEVEN, antithetic=antithetic)
    scaled = es_core.member_signs(5, 3, 1, 9, UNEVEN, scales, antithetic=antithetic)
    expected = signs * np.repeat(scales, UNEVEN[:, 2])
    np.testing.assert_array_equal(scaled.view(np.uint32), expected.view(np.uint32))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("antithetic", [False, True])
def test_signs_may_begin_anywhere_in_their_factors(antithetic: bool, threads: int) -> None:
    whole = UNEVEN + np.array([0, 0, 2000])
    scales = np.arange(1, 7, dtype=np.float32)
    every = es_core.member_signs(2**63 + 1, 9, 5, 9, whole, scales, antithetic=antithetic)
    begins = np.cumsum(whole[:, 2]) - whole[:, 2]
    for first_signs in ([1, 127, 128, 129, 1999, 0], [64, 31, 130, 1000, 256, 1], [0, 0, 0, 0, 0, 0]):
        signs = es_core.member_signs(
            2**63 + 1, 9, 5, 9, UNEVEN, scales, np.array(first_signs), antithetic=antithetic, threads=threads
        )
        expected = [
            every[:, begin + first : begin + first + length]
            for begin, first, length in zip(begins, first_signs, UNEVEN[:, 2], strict=True)
        ]
        np.testing.assert_array_equal(signs, np.concatenate(expected, axis=1))


def test_nobody_and_nothing_have_no_signs() -> None:
    assert es_core.member_signs(1, 1, 1, 0, UNEVEN).shape == (0, UNEVEN[:, 2].sum())
    assert es_core.member_signs(1, 1, 1, 3, factors_of()).shape == (3, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_members": -1}, "n_members: expected zero or more, of at most 2.40 signs together, got -1"),
        ({"n_members": 2**40}, "n_members: expected zero or more"),
        ({"factors": UNEVEN[:, :2].copy()}, r"factors: expected rows of \(tensor, factor, length\)"),
        ({"factors": UNEVEN.astype(np.int32)}, "factors: expected a C-contiguous array of int64"),
        ({"factors": factors_of((65536, 0, 1))}, "factors: expected a tensor and a factor .* got 65536, 0, 1"),
        ({"factors": factors_of((0, -1, 1))}, "factors: .* got 0, -1, 1"),
        ({"factors": factors_of((0, 0, 0))}, "factors: .* got 0, 0, 0"),
        ({"factors": factors_of((0, 0, 2**31 + 1))}, "factors: .* a length of 1 to 2.31"),
        ({"scales": np.ones(5, dtype=np.float32)}, "scales: expected one a factor, 6, got 5"),
        ({"scales": np.ones(6)}, "scales: expected a C-contiguous array of float32"),
        ({"first_signs": np.zeros(5, dtype=np.int64)}, "first_signs: expected one a factor, 6, got 5"),
        ({"first_signs": np.zeros(6)}, "first_signs: expected a C-contiguous array of int64"),
        ({"first_signs": np.array([0, 0, 0, 0, 0, -1])}, "first_signs: expected 0 to 2.31, got -1"),
        ({"first_signs": np.array([0, 2**31 + 1, 0, 0, 0, 0])}, "first_signs: expected 0 to 2.31, got 2147483649"),
    ],
)
def test_bad_requests_for_signs_are_refused(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"seed": 1, "step": 1, "first_member": 0, "n_members": 2, "factors": UNEVEN}
    with pytest.raises(ValueError, match=message):
        es_core.member_signs(**(arguments | change))  # type: ignore[arg-type]
