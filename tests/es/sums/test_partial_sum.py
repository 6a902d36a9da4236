import numpy as np
import pytest

import es_core
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.sums.partial_sum import partial_sum

LAYOUT = ParameterLayout((TensorSpec("matrix", (3, 5)), TensorSpec("vector", (4,))))
GROUP = 8


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_sum_tells_the_gradient_of_a_linear_loss(rank: int) -> None:
    perturbation = Perturbation(0.01, rank)
    slope = np.linspace(-1.0, 1.0, LAYOUT.size)
    n_members = GROUP * 4000
    noise = np.stack([noise_of(member, rank) for member in range(n_members)])
    losses = (3.0 + perturbation.sigma * noise @ slope).astype(np.float32)
    summed = partial_sum(
        LAYOUT,
        perturbation,
        losses,
        seed=5,
        step=2,
        first_member=0,
        group_size=GROUP,
        row_masks=None,
        threads=1,
    )
    gradient = summed / (es_core.ESTIMATE_UNIT * n_members / GROUP)
    # A group's own mean takes one of its degrees of freedom.
    np.testing.assert_allclose(gradient, slope * (GROUP - 1) / GROUP, atol=0.06)


def noise_of(member: int, rank: int) -> np.ndarray:
    def signs(tensor: int, factor: int, count: int) -> np.ndarray:
        return es_core.sign_noise(5, 2, member, tensor, factor, 0, count).astype(float)

    vector = signs(1, 0, 4)
    if rank == 0:
        return np.concatenate([signs(0, 0, 15), vector])
    matrix = sum(np.outer(signs(0, 2 * k, 3), signs(0, 2 * k + 1, 5)) for k in range(rank)) / rank**0.5
    return np.concatenate([np.reshape(matrix, -1), vector])


def sum_of(losses: np.ndarray, *, sigma: float) -> np.ndarray:
    return partial_sum(
        LAYOUT,
        Perturbation(sigma, 1),
        losses,
        seed=5,
        step=2,
        first_member=8,
        group_size=GROUP,
        row_masks=None,
        threads=1,
    )


def test_losses_that_do_not_differ_tell_nothing() -> None:
    assert not sum_of(np.ones(GROUP, dtype=np.float32), sigma=0.01).any()


@pytest.mark.parametrize("sigma", [0.0, -0.01, float("nan")])
def test_members_that_are_not_perturbed_are_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match=r"sigma: expected above 0, .*, got"):
        sum_of(np.ones(GROUP, dtype=np.float32), sigma=sigma)


@pytest.mark.parametrize("sigma", [1e-35, 1e-300])
def test_sums_beyond_32_bits_are_cut_and_keep_their_sign(sigma: float) -> None:
    losses = np.linspace(1e3, 1e5, GROUP, dtype=np.float32)
    usual, cut = sum_of(losses, sigma=0.01), sum_of(losses, sigma=sigma)
    assert usual.any()
    assert np.array_equal(cut, np.sign(usual) * (2**31 - 1))
