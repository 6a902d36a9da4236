"""Losses of a network whose products are of bytes."""

import numpy as np
import pytest

import es_core
from tests.es_core.networks import Network, Population, member_losses, network_of, population_of

INT8_SHAPES = [(65, 64, 1, 1), (67, 33, 3, 1), (11, 20, 2, 2), (3, 2, 1, 1), (300, 130, 1, 3)]


def int8_case(vocab: int, hidden: int, layers: int, rank: int) -> tuple[Network, Population]:
    rnn = network_of("tanh", vocab, hidden, layers, rank=rank)
    np.clip(rnn.initial_state, -0.9, 0.9, out=rnn.initial_state)  # a byte goes no further than 1
    return rnn, population_of(vocab, group_size=32, n_groups=8, batch_size=2, context=5, scored=12)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("shape", INT8_SHAPES, ids=str)
def test_int8_losses_rank_members_as_float32_does(shape: tuple[int, int, int, int]) -> None:
    rnn, tried = int8_case(*shape)
    exact, rough = (member_losses(rnn, tried, sigma=0.02, int8=int8) for int8 in (False, True))
    np.testing.assert_allclose(rough, exact, rtol=0, atol=0.02)
    deviations = [
        losses.reshape(-1, 32) - losses.reshape(-1, 32).mean(axis=1, keepdims=True) for losses in (exact, rough)
    ]
    assert np.corrcoef(deviations[0].ravel(), deviations[1].ravel())[0, 1] > 0.98


@pytest.mark.parametrize("shape", INT8_SHAPES, ids=str)
def test_int8_losses_hardly_differ_between_instruction_sets_and_threads(shape: tuple[int, int, int, int]) -> None:
    evaluation = int8_case(*shape)
    before = es_core.current_isa()
    reference = member_losses(*evaluation, int8=True)
    try:
        for isa in es_core.supported_isas():
            es_core.select_isa(isa)
            # A state on the border of two bytes may fall either way.
            np.testing.assert_allclose(member_losses(*evaluation, int8=True, threads=3), reference, rtol=0, atol=0.01)
    finally:
        es_core.select_isa(before)


def test_int8_cuts_an_initial_state_beyond_one() -> None:
    rnn, tried = int8_case(11, 20, 1, 1)
    losses = []
    for beyond in (1.0, 1.5, 3.0):
        rnn.weights[-20:] = beyond
        losses.append(member_losses(rnn, tried._replace(is_cold=np.ones(8, dtype=np.uint8)), sigma=0.0, int8=True))
    np.testing.assert_array_equal(losses[1], losses[0])
    np.testing.assert_array_equal(losses[2], losses[0])


def test_int8_is_not_float32_in_disguise() -> None:
    evaluation = int8_case(65, 64, 1, 1)
    assert np.abs(member_losses(*evaluation, int8=True) - member_losses(*evaluation)).max() > 1e-5


def test_full_rank_members_stay_in_float32() -> None:
    evaluation = int8_case(11, 20, 2, 0)
    np.testing.assert_array_equal(member_losses(*evaluation, int8=True), member_losses(*evaluation))


def test_int8_of_zero_weights_is_exact() -> None:
    rnn, tried = int8_case(11, 20, 1, 1)
    silent = rnn._replace(weights=np.zeros_like(rnn.weights))
    np.testing.assert_allclose(member_losses(silent, tried, sigma=0.0, int8=True), np.log(11), rtol=1e-6)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("layers", [1, 2])
def test_int8_weights_round_alike_on_both_sides_of_zero(layers: int) -> None:
    """With tanh, states change their sign with the embedding and the biases, and the head takes that back."""
    rnn, tried = int8_case(11, 20, layers, 1)
    opposite = rnn._replace(weights=rnn.weights.copy())
    for name, tensor in opposite.parts.items():
        if name in ("embedding.weight", "head.weight", "initial_state") or ".bias_l" in name:
            tensor *= -1.0
    losses = [member_losses(each, tried, sigma=0.0, int8=True) for each in (rnn, opposite)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=0, atol=1e-6)
