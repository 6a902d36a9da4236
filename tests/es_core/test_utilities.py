from collections.abc import Callable
from contextlib import AbstractContextManager
from math import isfinite

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import es_core

KnownAnswers = Callable[[str], list[dict[str, list[str]]]]
OddArithmetic = Callable[[], AbstractContextManager[None]]

losses = st.floats(-1e6, 1e6, width=32) | st.sampled_from([float("nan"), float("inf"), float("-inf")])


def plain_utilities(group: list[float], scale: float, resolution: float) -> list[int]:
    if not all(map(isfinite, group)):
        return [0] * len(group)
    mean = sum(group) / len(group)
    return [max(-127, min(127, round(resolution * (mean - loss) / scale))) for loss in group]


def test_utilities_have_the_known_answers(known_answers: KnownAnswers) -> None:
    for answer in known_answers("utilities.txt"):
        values = np.array([int(word, 16) for word in answer["losses"]], dtype=np.uint32).view(np.float32)
        utilities = es_core.normalized_utilities(
            values, int(answer["group_size"][0]), float(answer["scale"][0]), float(answer["resolution"][0])
        )
        assert utilities.tolist() == list(map(int, answer["utilities"]))


@given(
    st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(losses, min_size=n, max_size=n), max_size=6)),
    st.floats(1e-3, 1e3),
)
def test_utilities_equal_plain_python(groups: list[list[float]], scale: float) -> None:
    values = np.array(groups, dtype=np.float32).reshape(-1)
    utilities = es_core.normalized_utilities(values, len(groups[0]) if groups else 1, scale, 32.0)
    expected = [plain_utilities(group, scale, 32.0) for group in groups]
    assert utilities.tolist() == [utility for group in expected for utility in group]


def test_utilities_keep_their_bits_in_odd_arithmetic(odd_arithmetic: OddArithmetic) -> None:
    values = np.random.default_rng(0).standard_normal(600).astype(np.float32)
    values[:100] *= np.float32(1e-40)
    arguments = (values, 6, 0.1, 32.0)
    expected = es_core.normalized_utilities(*arguments)
    with odd_arithmetic():
        got = es_core.normalized_utilities(*arguments)
    np.testing.assert_array_equal(got, expected)


def test_wrong_losses_are_refused() -> None:
    with pytest.raises(ValueError, match=r"losses: expected a multiple of the group size 4, got 6"):
        es_core.normalized_utilities(np.zeros(6, dtype=np.float32), 4, 1.0, 32.0)
    with pytest.raises(ValueError, match=r"losses: expected .* float32 with 1 dimensions, got float64\(4,\)"):
        es_core.normalized_utilities(np.zeros(4), 4, 1.0, 32.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"losses: expected a C-contiguous array"):
        es_core.normalized_utilities(np.zeros(8, dtype=np.float32)[::2], 4, 1.0, 32.0)
    with pytest.raises(ValueError, match=r"losses"):
        es_core.normalized_utilities(np.zeros(4, dtype=np.float32), 0, 1.0, 32.0)
