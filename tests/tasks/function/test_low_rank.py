"""Members along few directions, against the same distribution with all of its covariances."""

import itertools
import math

import numpy as np
import pytest

from fedlearn.tasks.function.covariance import Float64Array, rates_of
from fedlearn.tasks.function.low_rank import SIZE_DAMPING, SUCCESS_SHARE, WANTED_SUCCESS, LowRankSearch
from tests.tasks.function.functions import cigar, sphere


def search_from(start: Float64Array, *, population: int = 12, seed: int = 0) -> LowRankSearch:
    generator = np.random.default_rng(seed)
    return LowRankSearch(start, np.full(start.size, 0.5), population=population, generator=generator)


Link = tuple[float, Float64Array, Float64Array]


def chain_of(paths: list[Float64Array], n: int, learned: float) -> tuple[list[Link], Float64Array]:
    """What each path adds to noise, a gain times the path times the product of noise with the last; and the factor of
    the covariance to which each added `learned` of its own, as a matrix."""
    links: list[Link] = []
    factor, kept = np.eye(n), math.sqrt(1 - learned)
    for path in paths:
        inverse: Float64Array = np.asarray(np.linalg.solve(factor, path), dtype=np.float64)
        length = math.sqrt(1 + learned / (1 - learned) * (inverse @ inverse))
        links.append((float(kept / (inverse @ inverse) * (length - 1)), path, inverse))
        factor = kept * factor + links[-1][0] * np.outer(path, inverse)
    return links, factor


def stretched(noise: Float64Array, links: list[Link], learned: float) -> Float64Array:
    move = noise
    for gain, path, inverse in links:
        move = math.sqrt(1 - learned) * move + gain * (inverse @ noise) * path
    return move


def test_factor_adds_a_share_of_each_path_to_the_covariance() -> None:
    paths, covariance = list(np.random.default_rng(1).standard_normal((4, 6))), np.eye(6)
    for path in paths:
        covariance = 0.9 * covariance + 0.1 * np.outer(path, path)
    _, factor = chain_of(paths, 6, 0.1)
    np.testing.assert_allclose(factor @ factor.T, covariance, rtol=1e-9)


def mean_by_matrices(n: int, population: int, n_steps: int) -> Float64Array:
    """The mean after steps of the same noise."""
    random, mean, size, success = np.random.default_rng(0), np.full(n, 3.0), 0.5, 0.0
    rates = rates_of(n, population, is_diagonal=True)
    weights = rates.weights[rates.weights > 0]
    learned, share = 0.1 / math.log(n + 1), 0.5 / math.sqrt(n)
    taken: list[tuple[int, Float64Array]] = []
    path, before = np.zeros(n), None
    for step in range(n_steps):
        noise = random.standard_normal((population // 2, n))
        many = 4 * np.abs(random.standard_normal(population // 2)) * np.where(np.arange(population // 2), 1, 10)
        links, _ = chain_of([each for _, each in taken], n, learned)
        halves = [
            stretched(each, links[-used:], learned)
            for each, used in zip(noise, np.ceil(many).astype(int).tolist(), strict=True)
        ]
        moves = np.repeat(halves, 2, axis=0) * np.tile([1.0, -1.0], population // 2)[:, np.newaxis]
        losses = cigar(mean + size * moves)
        move = weights @ moves[np.argsort(losses)[: weights.size]]
        mean = mean + size * move
        path = (1 - share) * path + math.sqrt(share * (2 - share) * rates.mass) * move
        if step % max(int(math.log(n)), 1) == 0:
            if len(taken) == 4 + int(3 * math.log(n)):
                gaps = [after[0] - one[0] for one, after in itertools.pairwise(taken)]
                del taken[gaps.index(min(gaps)) + 1 if min(gaps) < n else 0]
            taken.append((step, path))
        if before is not None:
            won = np.sign(before[np.newaxis] - losses[:, np.newaxis]).mean()
            success = (1 - SUCCESS_SHARE) * success + SUCCESS_SHARE * (won - WANTED_SUCCESS)
            size *= math.exp(success / SIZE_DAMPING)
        before = losses
    return mean


@pytest.mark.parametrize(("n", "n_steps"), [(3, 60), (8, 150)])
def test_steps_are_those_by_matrices(n: int, n_steps: int) -> None:
    search = search_from(np.full(n, 3.0))
    for _ in range(n_steps):
        search.tell(cigar(search.ask()))
    np.testing.assert_allclose(search.mean, mean_by_matrices(n, 12, n_steps), rtol=1e-6)


def test_members_are_pairs_around_the_mean() -> None:
    search = search_from(np.arange(5.0), population=7)
    for _ in range(20):
        members = search.ask()
        assert members.shape == (8, 5)
        np.testing.assert_allclose(members[::2] + members[1::2], np.tile(2 * search.mean, (4, 1)))
        search.tell(cigar(members))
    assert search.n_steps == 20


def test_narrow_valley_is_learned() -> None:
    """Without a direction along it a step of a hundredth of the way is too wide for it."""
    search = search_from(np.linspace(-1.0, 3.0, 100))
    for _ in range(1500):
        search.tell(cigar(search.ask()))
    assert cigar(search.mean[np.newaxis])[0] < 1.0


def test_deviations_grow_on_a_slope_and_shrink_around_the_least_point() -> None:
    slope, bowl = search_from(np.zeros(30)), search_from(np.zeros(30))
    for _ in range(100):
        slope.tell(slope.ask()[:, 0])
        bowl.tell(sphere(bowl.ask()))
    assert slope.ask().std() > 10 * 0.5
    assert bowl.ask().std() < 0.1 * 0.5


def test_the_order_of_losses_is_all_that_counts() -> None:
    plain, bent = search_from(np.ones(20)), search_from(np.ones(20))
    for _ in range(30):
        plain.tell(cigar(plain.ask()))
        bent.tell(np.sqrt(cigar(bent.ask())) - 1e6)
    np.testing.assert_array_equal(plain.mean, bent.mean)


def test_first_deviations_are_units() -> None:
    wide = np.array([1.0, 100.0, 1.0, 1.0])
    plain = LowRankSearch(np.ones(4), np.ones(4), population=8, generator=np.random.default_rng(0))
    scaled = LowRankSearch(wide, wide, population=8, generator=np.random.default_rng(0))
    for _ in range(20):
        plain.tell(cigar(plain.ask()))
        scaled.tell(cigar(scaled.ask() / wide))
    np.testing.assert_allclose(scaled.mean, wide * plain.mean)


def test_a_search_ends_on_flat_ground_and_at_a_point() -> None:
    flat, point = search_from(np.ones(5)), search_from(np.ones(5))
    assert flat.why_done(1e-11) == ""
    for _ in range(10 + math.ceil(30 * 5 / 12)):
        assert flat.why_done(1e-11) == ""
        flat.ask()
        flat.tell(np.ones(12))
    assert "differ by no more than" in flat.why_done(1e-11)
    for _ in range(1000):
        point.tell(sphere(point.ask()))
    assert point.why_done(0.0) == "members lie within 1e-11 of the first deviations"


def test_equal_losses_are_no_success_and_no_failure() -> None:
    search = search_from(np.ones(20))
    for _ in range(100):
        search.ask()
        search.tell(np.ones(12))
    shrunk = math.exp(
        -WANTED_SUCCESS / SIZE_DAMPING * (99 - sum((1 - SUCCESS_SHARE) ** step for step in range(1, 100)))
    )
    assert (search.ask() - search.mean).std() == pytest.approx(0.5 * shrunk, rel=0.2)
