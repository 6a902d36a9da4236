import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.es.optimizers import OPTIMIZERS, SearchStep, Sgd, exact_arithmetic
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
    arrays["numbers"] = [arrays["numbers"]]
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


@pytest.mark.parametrize("is_diagonal", [False, True])
@pytest.mark.parametrize("n", [2, 10])
def test_where_losses_say_nothing_members_keep_their_size(n: int, is_diagonal: bool) -> None:
    generator, ranks = np.random.default_rng(n), np.array([7, 5, 3, 1, -1, -3, -5, -7])

    def size(path_share: float) -> float:
        factor = np.ones(n) if is_diagonal else np.eye(n)
        search = search_of(
            position=np.zeros(n), factor=factor, path=np.zeros(n), scales=np.ones(n), numbers=np.zeros((0, n)),
            utilities=[],
        )  # fmt: skip
        for _ in range(200):
            numbers = generator.choice([-1, 1], size=(4, 128, n)).sum(axis=0) // 2
            step = SearchStep(
                search.position,
                search.factor,
                search.path,
                search.scales,
                [numbers],
                np.tile(ranks, 16).astype(np.int64),
            )
            with exact_arithmetic():
                Cma(0.5, path_share).search(step)
        learned = search.factor.astype(np.float64)
        return float(abs(np.linalg.det(np.diag(learned) if is_diagonal else learned)) ** (1 / n))

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
@pytest.mark.parametrize("is_diagonal", [False, True])
@pytest.mark.parametrize("n", [1, 2, 6])
def test_a_narrow_valley_is_followed_to_its_end_by_few_members_and_by_many(
    n: int, n_groups: int, is_diagonal: bool
) -> None:
    generator = np.random.default_rng(n)
    turned = np.eye(n) if is_diagonal else np.linalg.qr(generator.standard_normal((n, n)))[0]
    lengths = 10.0 ** np.linspace(0.0, 2.0, n)

    def losses(points: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((((points.astype(np.float64) - 1.0) @ turned * lengths) ** 2).sum(axis=1))

    search = search_of(
        position=np.zeros(n),
        factor=np.ones(n) if is_diagonal else turned,
        path=np.zeros(n),
        scales=np.ones(n),
        numbers=np.zeros((0, n)),
        utilities=[],
    )
    population, ranks = 8, np.array([7, 5, 3, 1, -1, -3, -5, -7])
    for _ in range(600):
        numbers = generator.choice([-1, 1], size=(4, n_groups * population, n)).sum(axis=0) // 2
        moves = numbers * search.factor if is_diagonal else numbers @ search.factor.T
        found = losses(search.position + 0.5 * moves).reshape(n_groups, population)
        utilities = ranks[np.argsort(np.argsort(found, axis=1), axis=1)].reshape(-1)
        step = SearchStep(search.position, search.factor, search.path, search.scales, [numbers], utilities)
        with exact_arithmetic():
            Cma(0.5, 0.5).search(step)
    assert losses(search.position[np.newaxis])[0] < 1e-8


def diagonal_search(**changes: Any) -> SearchStep:  # noqa: ANN401
    return searched(**{"factor": [2.0, 0.5], **changes})


def test_a_diagonal_moves_the_position_as_a_matrix_with_it_does() -> None:
    for factor in ([1.0, 1.0], [2.0, 0.5]):
        for learning_rate, scales in ((0.5, [1.0, 1.0]), (0.25, [1.0, 4.0])):
            vector, matrix = (
                searched(learning_rate, factor=array, scales=scales, path=[0.5, -1.0])
                for array in (factor, np.diag(factor))
            )
            np.testing.assert_array_equal(vector.position, matrix.position)
            np.testing.assert_array_equal(vector.path, matrix.path)


@pytest.mark.parametrize("numbers", [NUMBERS, [[1, 1], [1, -1], [0, 0], [2, 0]]])
def test_a_diagonal_learns_as_that_of_a_matrix_does_but_sooner(numbers: Any) -> None:  # noqa: ANN401
    factor, path, members = np.array([2.0, 0.5]), diagonal_search().path.astype(np.float64), np.array(numbers)
    rates = rates_of(2, 1.6, 1.6, is_diagonal=True)
    assert rates.rank_one == pytest.approx(4 / 3 * rates_of(2, 1.6, 1.6).rank_one)
    weights = np.array([0.75, 0.25, -0.25 * rates.weight_of_worse, -0.75 * rates.weight_of_worse])
    shape = rates.rank_one * (path**2 - 1)
    for weight, own in zip(weights, members, strict=True):
        length = 2 / max((own**2).sum(), 1) if weight < 0 else 1
        shape += rates.rank_many * weight * (length * own**2 - 1)
    length = np.linalg.norm(path) / (math.sqrt(2) * (1 - 1 / 8 + 1 / 84))
    size = math.exp(rates.path / rates.damping * (length - 1))
    np.testing.assert_allclose(diagonal_search(numbers=numbers).factor, size * factor * (1 + shape / 2), rtol=1e-4)


def test_a_diagonal_has_the_same_bits_however_members_come() -> None:
    generator = np.random.default_rng(3)
    numbers, utilities = generator.integers(-2, 3, size=(40, 300)), generator.integers(-9, 10, size=40)
    start = [generator.standard_normal(300) for _ in range(3)]

    def moved(blocks: list[NDArray[Any]]) -> list[bytes]:
        position, factor, path = (array.astype(np.float32) for array in start)
        by = SearchStep(position, factor, path, np.ones(300, dtype=np.float32), blocks, utilities)
        with exact_arithmetic():
            Cma(0.5, 0.5).search(by)
        assert not np.array_equal(factor, start[1].astype(np.float32))
        return [array.tobytes() for array in (position, factor, path)]

    assert moved([numbers]) == moved([numbers[:1], numbers[1:30], numbers[30:]]) == moved([*np.split(numbers, 40)])


def test_a_diagonal_is_equal_to_the_bit_to_one_of_single_numbers() -> None:
    generator = np.random.default_rng(5)
    numbers, utilities = generator.integers(-2, 3, size=(9, 7)), generator.integers(-9, 10, size=9)
    given = {name: generator.standard_normal(7).astype(np.float32) for name in ("position", "factor", "path", "scales")}
    search = searched(0.3, path_share=0.5, numbers=numbers, utilities=utilities, **given)
    better, worse = [max(int(u), 0) for u in utilities], [max(-int(u), 0) for u in utilities]
    masses = [sum(some) ** 2 / sum(u * u for u in some) for some in (better, worse)]
    by = rates_of(7, *masses, path_share=0.5, is_diagonal=True)
    weights = [b / sum(better) - by.weight_of_worse * (w / sum(worse)) for b, w in zip(better, worse, strict=True)]
    members = [(weight, own.tolist()) for weight, own in zip(weights, numbers, strict=True)]
    counted = [(w * (7 / max(sum(z * z for z in own), 1)) if w < 0 else w, own) for w, own in members]
    path, mean, factor = list[float](), list[float](), list[float]()
    for i in range(7):
        mean.append(sum(b * own[i] for b, (_, own) in zip(better, members, strict=True)) / sum(better))
        pushed = math.sqrt(by.path_mass * by.path * (2 - by.path)) * mean[i]
        path.append((1 - by.path) * float(given["path"][i]) + pushed)
        squares = 0.0
        for weight, own in counted:
            squares += weight * own[i] ** 2
        kept = 1 - 0.5 * by.rank_one - 0.5 * by.rank_many * math.fsum(weights)
        grown = kept + 0.5 * by.rank_many * squares + 0.5 * by.rank_one * (path[i] * path[i])
        factor.append(float(given["factor"][i]) * grown)
    usual = math.sqrt(7) * (1 - 1 / 28 + 1 / (21 * 49))
    x = min(by.path / by.damping * (math.sqrt(math.fsum(p * p for p in path)) / usual - 1), 1.0)
    size = 1 + x / 256
    for _ in range(8):
        size *= size
    moves = np.array([float(f) * m for f, m in zip(given["factor"], mean, strict=True)], dtype=np.float32)
    np.testing.assert_array_equal(search.path, np.array(path, dtype=np.float32))
    np.testing.assert_array_equal(search.factor, np.array([size * f for f in factor], dtype=np.float32))
    position = given["position"] + np.float32(0.3) * given["scales"] * moves
    np.testing.assert_array_equal(search.position, position)


@pytest.mark.parametrize("n", [201, 1000, 100_000])
def test_rates_of_a_diagonal_are_those_of_minimize(n: int) -> None:
    theirs = rates_of_minimize(n, 24, is_diagonal=True)
    worse = theirs.weights[theirs.weights < 0]
    ours = rates_of(n, theirs.mass, float(worse.sum() ** 2 / (worse**2).sum()), is_diagonal=True)
    assert (ours.path, ours.damping, ours.rank_one) == pytest.approx(
        (theirs.path_length, theirs.damping, theirs.rank_one)
    )
    assert ours.rank_many == pytest.approx(theirs.rank_many, rel=0.05)
    assert ours.weight_of_worse == pytest.approx(-worse.sum(), rel=0.05)


@pytest.mark.parametrize("mass", [1.0, 20.0, 1e6])
@pytest.mark.parametrize("n", [1, 2, 201, 10_000])
def test_no_step_makes_a_variance_negative(n: int, mass: float) -> None:
    rates = rates_of(n, mass, mass, is_diagonal=True)
    assert rates.rank_one + rates.rank_many <= 1.0
    # A worse member may have all of its length in one parameter.
    kept = 1 - rates.rank_one / 2 - rates.rank_many / 2 * (1 - rates.weight_of_worse)
    assert kept - rates.rank_many / 2 * rates.weight_of_worse * n > 0.0


def test_a_diagonal_stays_without_a_better_member_or_where_it_would_leave_float32() -> None:
    for changes in (
        {"utilities": np.zeros(4)},
        {"numbers": np.zeros((0, 2)), "utilities": np.zeros(0)},
        {"position": [3e38, 0.0], "factor": [3e38, 1.0]},
        {"factor": [2e38, 1.0], "path": [1e3, 0.0]},
        {"path": [np.nan, 0.0]},
    ):
        given: dict[str, Any] = {"path": [1.0, 2.0], "factor": [2.0, 0.5], **changes}
        before, after = search_of(**given), searched(1.0, **given)
        for name in ("position", "factor", "path"):
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


def test_with_more_members_the_path_counts_more_as_their_fourth_root() -> None:
    assert Cma(0.5, 0.75).widened(16) == Cma(0.5, 1.5)
    assert Cma(0.5, 0.75).widened(1) == Cma(0.5, 0.75)
    assert Cma(0.5).widened(4) == Cma(0.5)
    assert Sgd(0.5, 0.0).widened(16) == Sgd(0.5, 0.0)
