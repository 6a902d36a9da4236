import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.es.optimizers import OPTIMIZERS, SearchStep, exact_arithmetic
from fedlearn.es.optimizers.cma import Cma, rates_of
from fedlearn.tasks.function.covariance import rates_of as rates_of_minimize

NUMBERS = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
UTILITIES = np.array([3, 1, -1, -3])


def search_of(**changes: Any) -> SearchStep:  # noqa: ANN401 (arrays of several types)
    floats: dict[str, Any] = {
        "position": [1.0, 2.0],
        "factor": [[1.0, 0.0], [0.0, 1.0]],
        "path": [0.0, 0.0],
        "scales": [1.0, 1.0],
    }
    integers: dict[str, Any] = {"numbers": NUMBERS, "utilities": UTILITIES}
    arrays: dict[str, Any] = {
        name: np.array(changes.get(name, value), dtype=np.float32 if name in floats else np.int64)
        for name, value in (floats | integers).items()
    }
    return SearchStep(**arrays)


def searched(learning_rate: float = 0.5, *, path_share: float = 0.0, **changes: Any) -> SearchStep:  # noqa: ANN401
    search = search_of(**changes)
    with exact_arithmetic():
        Cma(learning_rate, path_share).search(search)
    return search


def test_it_alone_searches_and_its_rate_is_that_of_the_noise() -> None:
    assert [name for name, optimizer in OPTIMIZERS.items() if optimizer.searches] == ["cma"]
    assert [name for name, optimizer in OPTIMIZERS.items() if optimizer.rate_to_sigma] == ["cma"]
    assert Cma(0.5).slots == ("path",)


def test_the_position_moves_to_the_mean_of_the_better_by_factor_scale_and_rate() -> None:
    # The better half's mean is (3 * (1, 1) + (1, -1)) / 4 = (1, 0.5).
    assert searched().position.tolist() == [1.5, 2.25]
    assert searched(0.25).position.tolist() == [1.25, 2.125]
    assert searched(scales=[1.0, 4.0]).position.tolist() == [1.5, 3.0]
    assert searched(factor=[[0.0, 2.0], [1.0, 1.0]]).position.tolist() == [1.5, 2.75]


def test_the_path_keeps_a_share_and_adds_the_mean_in_units_of_chance() -> None:
    rates = rates_of(2, 1.6, 1.6)
    pushed = math.sqrt(rates.path_mass * rates.path * (2 - rates.path))
    assert searched().path.tolist() == pytest.approx([pushed, 0.5 * pushed])
    kept = 1 - rates.path
    assert searched(path=[4.0, -8.0]).path.tolist() == pytest.approx([4 * kept + pushed, 0.5 * pushed - 8 * kept])


def test_the_factor_learns_from_path_and_members() -> None:
    factor = np.array([[2.0, 1.0], [0.0, 1.0]])
    rates, path = rates_of(2, 1.6, 1.6), searched().path.astype(np.float64)
    weights = np.array([0.75, 0.25, -0.25 * rates.weight_of_worse, -0.75 * rates.weight_of_worse])
    shape = rates.rank_one * (np.outer(path, path) - np.eye(2))
    for weight, numbers in zip(weights, NUMBERS, strict=True):
        shape += rates.rank_many * weight * (np.outer(numbers, numbers) - np.eye(2))
    length = np.linalg.norm(path) / (math.sqrt(2) * (1 - 1 / 8 + 1 / 84))
    size = math.exp(rates.path / rates.damping * (length - 1))
    # The exponential is that of 256 steps of compound interest.
    np.testing.assert_allclose(searched(factor=factor).factor, size * factor @ (np.eye(2) + shape / 2), rtol=1e-4)


def test_worse_members_count_as_if_they_had_the_usual_length() -> None:
    numbers = np.array([[1, 1], [1, -1], [0, 0], [2, 2]])
    rates = rates_of(2, 1.6, 1.6)
    twice, usual = (searched(numbers=[*numbers[:3], last]).factor for last in ([2, 2], [1, 1]))
    np.testing.assert_array_equal(twice, usual)
    # One that does not move is no reason for anything.
    pushed = rates.weight_of_worse * rates.rank_many / 2 * 0.25 * np.ones((2, 2))
    one, none = (searched(numbers=[*numbers[:2], third, [0, 0]]).factor for third in ([1, 1], [0, 0]))
    difference = (none.astype(np.float64) - one) / (searched().factor[0, 0] / 1.0)
    assert (difference > 0).all()
    np.testing.assert_allclose(difference / difference[0, 0], pushed / pushed[0, 0], rtol=1e-4)


@pytest.mark.parametrize("n", [2, 10])
def test_where_losses_say_nothing_members_keep_their_size(n: int) -> None:
    generator, ranks = np.random.default_rng(n), np.array([7, 5, 3, 1, -1, -3, -5, -7])

    def size(path_share: float) -> float:
        search = search_of(
            position=np.zeros(n), factor=np.eye(n), path=np.zeros(n), scales=np.ones(n), numbers=np.zeros((0, n)),
            utilities=[],
        )  # fmt: skip
        for _ in range(200):
            numbers = generator.choice([-1, 1], size=(4, 128, n)).sum(axis=0) // 2
            step = SearchStep(
                search.position, search.factor, search.path, search.scales, numbers, np.tile(ranks, 16).astype(np.int64)
            )
            with exact_arithmetic():
                Cma(0.5, path_share).search(step)
        return float(abs(np.linalg.det(search.factor.astype(np.float64))) ** (1 / n))

    assert 0.05 < size(0.0) < 20.0
    assert size(0.5) < 1e-3


def test_a_long_path_makes_members_longer_and_a_short_one_shorter() -> None:
    def size(path: list[float]) -> float:
        return float(abs(np.linalg.det(searched(path=path).factor)))

    assert size([-0.8, -0.4]) < 1.0 < size([3.0, 3.0]) < size([6.0, 6.0])
    # The factor grows at most by e a step.
    grown = searched(path=[1e6, 0.0], utilities=np.array([1, 1, 0, 0])).factor
    assert grown[1, 1] <= math.e


def test_without_a_better_member_nothing_moves() -> None:
    for changes in (
        {"utilities": np.zeros(4)},
        {"numbers": np.zeros((0, 2)), "utilities": np.zeros(0)},
    ):
        before, after = search_of(path=[1.0, 2.0]), searched(path=[1.0, 2.0], **changes)
        for name in ("position", "factor", "path"):
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


@pytest.mark.parametrize(
    "changes",
    [
        {"position": [3e38, 0.0], "factor": [[3e38, 0.0], [0.0, 1.0]]},
        {"factor": [[2e38, 0.0], [0.0, 1.0]], "path": [1e3, 0.0]},
        {"path": [np.nan, 0.0]},
    ],
)
def test_a_step_that_would_leave_float32_is_not_taken(changes: dict[str, Any]) -> None:
    before, after = search_of(**changes), searched(1.0, **changes)
    for name in ("position", "factor", "path"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


@pytest.mark.parametrize("n", [20, 100])
def test_rates_are_those_of_minimize_where_members_are_few(n: int) -> None:
    theirs = rates_of_minimize(n, 12, is_diagonal=False)
    worse = theirs.weights[theirs.weights < 0]
    mass_of_worse = float(worse.sum() ** 2 / (worse**2).sum())
    ours = rates_of(n, theirs.mass, mass_of_worse)
    assert (ours.path, ours.damping, ours.rank_one) == pytest.approx(
        (theirs.path_length, theirs.damping, theirs.rank_one)
    )
    assert ours.rank_many == pytest.approx(theirs.rank_many, rel=0.2)  # an older edition's, a little smaller
    assert ours.weight_of_worse == pytest.approx(-worse.sum(), rel=0.2)


def test_the_path_counts_no_more_members_than_a_share_of_the_numbers() -> None:
    assert rates_of(10, 2.0, 2.0, path_share=0.3).path_mass == 2.0
    assert rates_of(10, 50.0, 50.0, path_share=0.3).path_mass == 3.0
    assert rates_of(10, 50.0, 50.0).path_mass == 50.0
    assert rates_of(10, 50.0, 50.0).rank_many > rates_of(10, 5.0, 5.0).rank_many
    assert searched(path_share=0.5).path.tolist() < searched().path.tolist()


@pytest.mark.parametrize("n_groups", [1, 16])
@pytest.mark.parametrize("n", [1, 2, 6])
def test_a_narrow_valley_is_followed_to_its_end_by_few_members_and_by_many(n: int, n_groups: int) -> None:
    generator = np.random.default_rng(n)
    turned = np.linalg.qr(generator.standard_normal((n, n)))[0]
    lengths = 10.0 ** np.linspace(0.0, 2.0, n)

    def losses(points: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((((points.astype(np.float64) - 1.0) @ turned * lengths) ** 2).sum(axis=1))

    search = search_of(
        position=np.zeros(n), factor=turned, path=np.zeros(n), scales=np.ones(n), numbers=np.zeros((0, n)), utilities=[]
    )
    population, ranks = 8, np.array([7, 5, 3, 1, -1, -3, -5, -7])
    for _ in range(600):
        numbers = generator.choice([-1, 1], size=(4, n_groups * population, n)).sum(axis=0) // 2
        found = losses(search.position + 0.5 * (numbers @ search.factor.T)).reshape(n_groups, population)
        utilities = ranks[np.argsort(np.argsort(found, axis=1), axis=1)].reshape(-1)
        step = SearchStep(search.position, search.factor, search.path, search.scales, numbers, utilities)
        with exact_arithmetic():
            Cma(0.5, 0.5).search(step)
    assert losses(search.position[np.newaxis])[0] < 1e-8
