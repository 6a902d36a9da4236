"""Texts that a network reads with its weights as they are, whatever the cell."""

import numpy as np
import pytest

import es_core
from fedlearn.tasks.rnn.cells import CellName
from tests.es_core.networks import (
    CELL_NAMES,
    TOLERANCE,
    member_losses,
    network_of,
    next_log_probabilities,
    population_of,
    states_of,
    text_losses,
)

pytestmark = [pytest.mark.usefixtures("isa"), pytest.mark.parametrize("cell", CELL_NAMES)]


def test_text_losses_agree_with_naive_members_of_sigma_zero(cell: CellName) -> None:
    network = network_of(cell, 37, 21, 3, rank=0)
    population = population_of(37, group_size=1, n_groups=53, batch_size=1, context=0, scored=9)
    expected = 9 * member_losses(network, population, sigma=0.0, naive=True)
    initial = np.repeat(network.initial_state[np.newaxis], 53, axis=0)
    for threads in (1, 2):
        losses, _ = text_losses(network, population.tokens[:, 0], initial, threads=threads)
        np.testing.assert_allclose(losses, expected, rtol=0, atol=9 * TOLERANCE)


def test_a_text_may_be_read_in_pieces(cell: CellName) -> None:
    network = network_of(cell, 11, 13, 2, rank=0)
    tokens, start = np.random.default_rng(3).integers(0, 11, (4, 12)).astype(np.uint16), states_of(network, 4)
    whole, end = text_losses(network, tokens, start)
    first, middle = text_losses(network, tokens[:, :6], start)
    second, same_end = text_losses(network, tokens[:, 5:], middle)
    np.testing.assert_allclose(first + second, whole, rtol=0, atol=1e-4)
    np.testing.assert_allclose(same_end, end, rtol=0, atol=TOLERANCE)


def test_log_probabilities_are_those_that_the_losses_sum(cell: CellName) -> None:
    network = network_of(cell, 19, 13, 2, rank=0)
    tokens, state = np.random.default_rng(3).integers(0, 19, (50, 7)).astype(np.uint16), states_of(network, 50)
    losses, end = text_losses(network, tokens, state, threads=2)
    total = np.zeros(50)
    for t in range(6):
        log_probabilities, state = next_log_probabilities(network, tokens[:, t : t + 1], state)
        np.testing.assert_allclose(np.exp(log_probabilities).sum(axis=1), 1.0, rtol=0, atol=TOLERANCE)
        total -= log_probabilities[np.arange(50), tokens[:, t + 1]]
    np.testing.assert_allclose(total, losses, rtol=0, atol=1e-4)
    np.testing.assert_allclose(state, end, rtol=0, atol=TOLERANCE)


def test_the_closed_form_of_the_head_is_residuals_times_states(cell: CellName) -> None:
    network = network_of(cell, 30, 21, 2, rank=0)
    population = population_of(30, group_size=1, n_groups=3, batch_size=2, context=4, scored=9)
    tokens, is_warm = population.tokens.reshape(6, -1), np.repeat(population.is_cold == 0, 2)
    start = state = np.repeat(network.initial_state[np.newaxis], 6, axis=0)
    gradient = {"head.weight": np.zeros((30, 21)), "head.bias": np.zeros(30)}
    for place in range(4 + 9):
        log_probabilities, state = next_log_probabilities(network, tokens[:, place : place + 1], state)
        if place < 4:
            state = np.where(is_warm[:, np.newaxis, np.newaxis], state, start)
            continue
        residuals = (np.exp(log_probabilities) - np.eye(30)[tokens[:, place + 1]]) / (2 * 9)
        gradient["head.weight"] += residuals.T @ state[:, 1]
        gradient["head.bias"] += residuals.sum(axis=0)
    scales = np.array([2.0 if name == "head.bias" else 1.0 for name in network.parts], dtype=np.float32)
    estimate = es_core.rnn_head_gradient(
        *network._replace(scales=scales).arguments,
        tokens=population.tokens,
        context=4,
        is_cold=population.is_cold,
        cell=cell,
        threads=2,
    )
    found = network._replace(weights=estimate.astype(np.float32)).parts
    for name, part in found.items():
        expected = gradient.get(name, np.zeros_like(part)) * (2.0 if name == "head.bias" else 1.0)
        np.testing.assert_allclose(part / es_core.ESTIMATE_UNIT, expected, rtol=0, atol=1e-4, err_msg=name)


def test_nan_weights_give_nan_texts(cell: CellName) -> None:
    network = network_of(cell, 9, 8, 2, rank=0)
    network.weights[:] = np.nan
    tokens, state = np.zeros((3, 4), dtype=np.uint16), states_of(network, 3)
    assert np.isnan(text_losses(network, tokens, state)[0]).all()
    assert np.isnan(next_log_probabilities(network, tokens, state)[0]).all()


@pytest.mark.parametrize("read", [text_losses, next_log_probabilities])
def test_wrong_texts_are_refused(cell: CellName, read: object) -> None:
    assert callable(read)
    network = network_of(cell, 9, 8, 1, rank=1)
    tokens, state = np.zeros((2, 3), dtype=np.uint16), states_of(network, 2)
    expected_state = rf"state: expected \[2, {state.shape[1]}, 8\], got"
    read(network, tokens, state)
    with pytest.raises(ValueError, match="tokens: expected tokens below 9, got 9"):
        read(network, tokens + np.uint16(9), state)
    with pytest.raises(ValueError, match=r"tokens: expected \[rows, at least"):
        read(network, tokens[:, :0], state)
    with pytest.raises(ValueError, match=expected_state):
        read(network, tokens, state[:1])
    with pytest.raises(ValueError, match=expected_state):
        read(network, tokens, np.zeros((*state.shape[:2], 9), dtype=np.float32))
