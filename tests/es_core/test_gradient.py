from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import es_core

KnownAnswers = Callable[[str], list[dict[str, list[str]]]]
Int32Array = NDArray[np.int32]
THREADS = (1, 2, 3)


class Case:
    """A model and a population at random, small enough for the naive twin."""

    def __init__(
        self,
        *,
        shapes: list[tuple[int, int, int, bool]],
        group_size: int,
        groups_of_spans: list[int],
        seed: int,
        gap: int = 0,
        antithetic: bool = False,
        places: list[tuple[int, int]] | None = None,
    ) -> None:
        """`shapes` are rows, columns, rank, and whether the rows are masked; places are those in a whole model."""
        self.places = None if places is None else np.array(places[: len(shapes)], dtype=np.int64)
        generator = np.random.default_rng(seed)
        rows, offset, self.mask_columns = [], 0, 0
        for n_rows, n_columns, rank, is_masked in shapes:
            rows.append((offset, n_rows, n_columns, rank, self.mask_columns if is_masked else -1))
            offset += n_rows * n_columns + gap
            self.mask_columns += n_rows if is_masked else 0
        self.tensors = np.array(rows, dtype=np.int64)
        self.n_parameters = offset
        self.antithetic = antithetic
        self.group_size = group_size = 2 * group_size if antithetic else group_size
        self.spans: list[tuple[int, int]] = []
        first_member = 0
        for n_groups in groups_of_spans:
            first_member += int(generator.integers(0, 2**33)) * group_size
            self.spans.append((first_member, n_groups * group_size))
            first_member += n_groups * group_size
        n_groups = sum(groups_of_spans)
        self.utilities = generator.integers(-127, 128, n_groups * group_size).astype(np.int8)
        self.row_masks = generator.integers(0, 2, (n_groups, self.mask_columns)).astype(np.uint8)

    def estimate(
        self, *, threads: int = 1, naive: bool = False, spans: slice = slice(None), seed: int = 2**60 + 3
    ) -> Int32Array:
        """Of some of the spans."""
        chosen = self.spans[spans]
        ends = np.cumsum([0, *(count for _, count in self.spans)])
        kept = [slice(ends[i], ends[i + 1]) for i in range(len(self.spans))[spans]]
        members = np.concatenate([np.arange(s.start, s.stop) for s in kept])
        return es_core.estimate_gradient(
            self.tensors,
            self.n_parameters,
            seed=seed,
            step=4_000_000_000,
            group_size=self.group_size,
            spans=chosen,
            utilities=self.utilities[members],
            row_masks=self.row_masks[members[:: self.group_size] // self.group_size] if self.mask_columns else None,
            places=self.places,
            antithetic=self.antithetic,
            threads=threads,
            naive=naive,
        )


def small_case(*, antithetic: bool = False) -> Case:
    return Case(
        shapes=[(4, 9, 2, True), (1, 6, 0, False), (3, 5, 0, True)],
        group_size=3,
        groups_of_spans=[2, 1],
        seed=5,
        antithetic=antithetic,
    )


shapes = st.tuples(st.integers(1, 9), st.integers(1, 75), st.integers(0, 3), st.booleans())
cases = st.builds(
    Case,
    shapes=st.lists(shapes, min_size=1, max_size=3),
    group_size=st.integers(1, 11),
    groups_of_spans=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 3),
    antithetic=st.booleans(),
    places=st.none()
    | st.lists(st.tuples(st.integers(0, 65535), st.integers(0, 300) | st.integers(0, 2**31)), min_size=3, max_size=3),
)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("threads", THREADS)
def test_gradient_has_the_known_answers(known_answers: KnownAnswers, threads: int) -> None:
    for answer in known_answers("gradient.txt"):
        tensors = [list(map(int, row)) for key, row in answer.items() if key.startswith("tensor ")]
        spans = [span.split("+") for span in answer["spans"]]
        estimate = es_core.estimate_gradient(
            np.array(tensors, dtype=np.int64),
            int(answer["n_parameters"][0]),
            seed=int(answer["seed"][0]),
            step=int(answer["step"][0]),
            group_size=int(answer["group_size"][0]),
            spans=[(int(first), int(count)) for first, count in spans],
            utilities=np.array(answer["utilities"], dtype=np.int64).astype(np.int8),
            row_masks=np.array([list(map(int, mask)) for mask in answer["row_masks"]], dtype=np.uint8),
            threads=threads,
        )
        if "estimate" in answer:
            assert estimate.tolist() == list(map(int, answer["estimate"]))
        else:
            digest = blake2b(estimate.astype("<i4").tobytes(), digest_size=16).hexdigest()
            assert digest == answer["estimate_blake2b"][0]


@pytest.mark.parametrize("antithetic", [False, True])
def test_naive_gradient_is_the_sum_of_utility_times_noise(antithetic: bool) -> None:
    case = small_case(antithetic=antithetic)
    expected = np.zeros(case.n_parameters, dtype=np.int64)
    members = [first + i for first, count in case.spans for i in range(count)]
    for index, (member, utility) in enumerate(zip(members, case.utilities.tolist(), strict=True)):
        mask = case.row_masks[index // case.group_size]
        if antithetic:
            member, utility = member - member % 2, -utility if member % 2 else utility
        for tensor, (offset, rows, columns, rank, mask_column) in enumerate(case.tensors.tolist()):

            def signs(factor: int, count: int, member: int = member, tensor: int = tensor) -> Int32Array:
                noise = es_core.sign_noise(2**60 + 3, 4_000_000_000, member, tensor, factor, 0, count)
                return noise.astype(np.int32)

            if rank == 0:
                noise = signs(0, rows * columns).reshape(rows, columns)
            else:
                pairs = [(signs(2 * k, rows), signs(2 * k + 1, columns)) for k in range(rank)]
                noise = np.sum([np.outer(a, b) for a, b in pairs], axis=0)
            if mask_column >= 0:
                noise = noise * mask[mask_column : mask_column + rows, np.newaxis]
            expected[offset : offset + rows * columns] += utility * noise.reshape(-1)
    np.testing.assert_array_equal(case.estimate(naive=True), expected)


@settings(deadline=None, max_examples=300)
@example(
    case=Case(shapes=[(7, 65, 2, True), (1, 33, 0, False)], group_size=65, groups_of_spans=[5, 1], seed=1),
    threads=2,
)
@given(case=cases, threads=st.sampled_from(THREADS))
def test_fast_gradient_equals_the_naive_one(case: Case, threads: int) -> None:
    naive = case.estimate(naive=True)
    before = es_core.current_isa()
    try:
        for isa in es_core.supported_isas():
            es_core.select_isa(isa)
            np.testing.assert_array_equal(case.estimate(threads=threads), naive, err_msg=isa)
    finally:
        es_core.select_isa(before)


@settings(deadline=None, max_examples=100)
@given(cases)
def test_partial_sums_add_up_exactly(case: Case) -> None:
    parts = [case.estimate(spans=slice(i, i + 1)) for i in range(len(case.spans))]
    np.testing.assert_array_equal(np.sum(parts, axis=0), case.estimate())


def test_another_seed_gives_another_gradient() -> None:
    assert not np.array_equal(small_case().estimate(), small_case().estimate(seed=1))


def test_a_population_of_nobody_has_no_gradient() -> None:
    estimate = es_core.estimate_gradient(
        np.array([[0, 1, 9, 0, -1]]),
        9,
        seed=1,
        step=1,
        group_size=4,
        spans=[],
        utilities=np.zeros(0, dtype=np.int8),
        row_masks=None,
    )
    np.testing.assert_array_equal(estimate, np.zeros(9, dtype=np.int32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensors": np.zeros((1, 4), dtype=np.int64)}, "tensors: expected rows of"),
        ({"tensors": np.array([[0, 4, 2, 9, -1]])}, "a rank from 0 to 8, got 9"),
        ({"tensors": np.array([[1, 4, 2, 1, -1]])}, "row 0 to lie within 8 parameters"),
        ({"tensors": np.array([[0, 0, 2, 1, -1]])}, "row 0 to lie within 8 parameters"),
        ({"tensors": np.zeros((0, 5), dtype=np.int64)}, "1 to 65535 tensors"),
        ({"n_parameters": 0}, "n_parameters: out of range"),
        ({"group_size": 0}, "group_size: expected at least 1, got 0"),
        ({"group_size": 1, "antithetic": True}, "group_size: expected an even number with antithetic pairs, got 1"),
        ({"spans": [(0, 3)], "utilities": np.zeros(3, dtype=np.int8)}, "spans: expected whole groups of 2"),
        ({"spans": [(1, 4)]}, "spans: expected whole groups of 2"),
        ({"spans": [(0, 2)]}, "utilities: expected one a member, 2, got 4"),
        ({"utilities": np.zeros(4, dtype=np.int16)}, "utilities: expected a C-contiguous array of int8"),
        ({"utilities": np.zeros(8, dtype=np.int8)[::2]}, "utilities: expected a C-contiguous array"),
        ({"utilities": np.array([0, -128, 0, 0], dtype=np.int8)}, "expected -127 to 127, got -128"),
        ({"row_masks": None}, "row_masks: expected masks"),
        ({"row_masks": np.ones((1, 4), dtype=np.uint8)}, r"row_masks: expected \[2, 4\], got uint8\(1, 4\)"),
        ({"row_masks": np.ones((2, 3), dtype=np.uint8)}, r"row_masks: expected \[2, 4\], got uint8\(2, 3\)"),
        ({"row_masks": np.ones((2, 4))}, "row_masks: expected a C-contiguous array of uint8"),
        ({"places": np.zeros((2, 2), dtype=np.int64)}, r"places: expected a row of .* a tensor, got int64\(2, 2\)"),
        ({"places": np.zeros((1, 3), dtype=np.int64)}, r"places: expected a row of .* a tensor, got int64\(1, 3\)"),
        ({"places": np.zeros((1, 2))}, "places: expected a C-contiguous array of int64"),
        ({"places": np.array([[65536, 0]])}, "a number from 0 to 65535 and a first sign .* got 65536, 0"),
        ({"places": np.array([[-1, 0]])}, "a number from 0 to 65535 .* got -1, 0"),
        ({"places": np.array([[0, -1]])}, "a first sign from 0 to 2.31, got 0, -1"),
        ({"places": np.array([[0, 2**31 + 1]])}, "a first sign from 0 to 2.31, got 0, 2147483649"),
    ],
)
def test_wrong_arguments_are_refused(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "tensors": np.array([[0, 4, 2, 1, 0]]),
        "n_parameters": 8,
        "seed": 1,
        "step": 1,
        "group_size": 2,
        "spans": [(0, 4)],
        "utilities": np.zeros(4, dtype=np.int8),
        "row_masks": np.ones((2, 4), dtype=np.uint8),
    }
    es_core.estimate_gradient(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        es_core.estimate_gradient(**(arguments | change))  # type: ignore[arg-type]


def test_a_population_that_could_overflow_the_sum_is_refused() -> None:
    rank = 8
    most = (2**31 - 1) // (127 * rank)
    with pytest.raises(ValueError, match=f"a population of {most + 1} members could overflow"):
        es_core.estimate_gradient(
            np.array([[0, 2, 2, rank, -1]]),
            4,
            seed=1,
            step=1,
            group_size=1,
            spans=[(0, most + 1)],
            utilities=np.zeros(most + 1, dtype=np.int8),
            row_masks=None,
        )


@pytest.mark.usefixtures("isa")
def test_the_greatest_sum_does_not_overflow_within_a_chunk() -> None:
    n = 20_000
    signs = np.stack([es_core.sign_noise(1, 1, member, 0, 0, 0, 1) for member in range(n)])[:, 0]
    estimate = es_core.estimate_gradient(
        np.array([[0, 1, 1, 0, -1]]),
        1,
        seed=1,
        step=1,
        group_size=n,
        spans=[(0, n)],
        utilities=(127 * signs.astype(np.int64)).astype(np.int8),
        row_masks=None,
    )
    assert estimate.tolist() == [127 * n]


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("is_naive", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize(("first", "count"), [(0, 7), (1, 30), (31, 40), (96, 129), (127, 2), (128, 300), (297, 3)])
def test_rows_of_a_tensor_have_the_gradient_that_they_have_in_the_whole(
    first: int, count: int, rank: int, is_naive: bool
) -> None:
    n_rows, n_columns, number = 428, 5, 3
    generator = np.random.default_rng(first)
    population: dict[str, object] = {
        "seed": 2**40 + 1,
        "step": 3,
        "group_size": 2,
        "spans": [(2**33, 6)],
        "utilities": generator.integers(-127, 128, 6).astype(np.int8),
        "row_masks": generator.integers(0, 2, (3, n_rows + 2)).astype(np.uint8),
        "naive": is_naive,
    }

    def gradient(*tensor: int, first_sign: int) -> Int32Array:
        places = np.array([(number, first_sign)])
        return es_core.estimate_gradient(
            np.array([tensor]),
            tensor[1] * tensor[2],
            places=places,
            **population,  # type: ignore[arg-type]
        )

    whole = gradient(0, n_rows, n_columns, rank, 2, first_sign=0)
    rows = gradient(0, count, n_columns, rank, 2 + first, first_sign=first if rank else first * n_columns)
    np.testing.assert_array_equal(rows, whole[first * n_columns : (first + count) * n_columns])
