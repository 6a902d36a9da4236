"""Whatever reads the reset token does so from a state of zeros: nothing before it has a part in what follows."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import es_core
from fedlearn.tasks.rnn.cells import CellName
from tests.es_core.activity_twin import Array, Case, case, run
from tests.es_core.networks import (
    CELL_NAMES,
    TOLERANCE,
    Float32Array,
    Network,
    Population,
    Tokens,
    member_losses,
    network_of,
    next_log_probabilities,
    states_of,
    text_losses,
)

STOP = 3
CONTEXT = 5


def network(cell: CellName, vocab: int = 19, hidden: int = 13, layers: int = 2, rank: int = 1) -> Network:
    return network_of(cell, vocab, hidden, layers, rank=rank, seed=7, gain=1.0)


def losses_of(rnn: Network, tokens: Tokens, reset_token: int = STOP, **options: Any) -> Float32Array:  # noqa: ANN401
    """[groups, 6] of windows [groups, sequences, CONTEXT + scored + 1], every second group cold."""
    is_cold = (np.arange(len(tokens)) % 2).astype(np.uint8)
    population = Population(6, tokens, CONTEXT, is_cold)
    return member_losses(rnn, population, reset_token=reset_token, **options).reshape(-1, 6)


def windows_of(vocab: int = 19, n_groups: int = 4, scored: int = 9, seed: int = 1) -> Tokens:
    """Windows of two sequences without STOP."""
    tokens = np.random.default_rng(seed).integers(0, vocab - 1, (n_groups, 2, CONTEXT + scored + 1))
    return (tokens + (tokens >= STOP)).astype(np.uint16)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("cell", CELL_NAMES)
def test_a_text_of_documents_costs_what_they_cost_apart(cell: CellName) -> None:
    rnn = network(cell)
    first, second = windows_of(seed=2)[:, 0], windows_of(seed=3)[:, 1]
    second[:, 0] = STOP
    start = states_of(rnn, 4)
    zeros = np.zeros_like(start)
    # The first document's last prediction is that it ends.
    ended = np.concatenate([first, second[:, :1]], axis=1)
    apart = text_losses(rnn, ended, start, reset_token=-1)[0] + text_losses(rnn, second, zeros, reset_token=-1)[0]
    whole = np.concatenate([first, second], axis=1)
    losses, state = text_losses(rnn, whole, start, reset_token=STOP)
    np.testing.assert_allclose(losses, apart, rtol=0, atol=1e-4)
    np.testing.assert_allclose(state, text_losses(rnn, second, zeros, reset_token=-1)[1], rtol=0, atol=TOLERANCE)
    assert (np.abs(losses - text_losses(rnn, whole, start, reset_token=-1)[0]) > 0.01).all()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("cell", CELL_NAMES)
def test_a_carried_state_ends_where_a_row_reads_the_reset_token(cell: CellName) -> None:
    rnn = network(cell)
    tokens, state = np.array([[STOP], [1], [STOP]], np.uint16), states_of(rnn, 3)
    log_probabilities, after = next_log_probabilities(rnn, tokens, state, reset_token=STOP)
    expected, from_zero = next_log_probabilities(
        rnn, tokens, np.where([[[True]], [[False]], [[True]]], np.float32(0.0), state), reset_token=STOP
    )
    np.testing.assert_array_equal(log_probabilities, expected)
    np.testing.assert_array_equal(after, from_zero)
    np.testing.assert_array_equal(after[0], after[2])
    assert np.abs(after[0]).min() > 1e-6  # what follows knows that a document begins


KINDS = [
    ("tanh", False, 0),
    ("tanh", False, 1),
    ("tanh", False, 3),
    ("tanh", True, 1),
    ("tanh", True, 2),
    ("gru", False, 1),
    ("lstm", False, 0),
    ("lstm", False, 2),
]


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("cell", "int8", "rank"), KINDS)
def test_members_forget_what_stands_before_the_reset_token(cell: CellName, int8: bool, rank: int) -> None:
    rnn = network(cell, rank=rank)
    tokens, others = windows_of(seed=2), windows_of(seed=3)
    others[:, :, CONTEXT:] = tokens[:, :, CONTEXT:]
    assert (losses_of(rnn, tokens, int8=int8) != losses_of(rnn, others, int8=int8))[::2].all()
    for window in (tokens, others):
        window[:, :, CONTEXT] = STOP
    losses = losses_of(rnn, tokens, int8=int8)
    np.testing.assert_array_equal(losses, losses_of(rnn, others, int8=int8))
    assert (losses != losses_of(rnn, tokens, reset_token=-1, int8=int8)).all()
    # The noise on a cold group's initial state is forgotten, too.
    rnn.initial_state[:] = 0.9
    np.testing.assert_array_equal(losses, losses_of(rnn, tokens, int8=int8))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("cell", "int8", "rank"), KINDS)
def test_a_reset_within_the_context_counts(cell: CellName, int8: bool, rank: int) -> None:
    rnn = network(cell, rank=rank)
    tokens = windows_of()
    tokens[:, :, 2] = STOP
    others = tokens.copy()
    others[:, :, :2] = 1
    losses = losses_of(rnn, tokens, int8=int8)
    np.testing.assert_array_equal(losses, losses_of(rnn, others, int8=int8))
    assert (losses != losses_of(rnn, tokens, reset_token=-1, int8=int8))[::2].all()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("hidden", "layers", "rank"), [(64, 1, 1), (33, 3, 1), (20, 2, 2)])
def test_int8_losses_stay_near_those_of_float32(hidden: int, layers: int, rank: int) -> None:
    rnn = network("tanh", hidden=hidden, layers=layers, rank=rank)
    tokens = windows_of(scored=16)
    tokens[:, :, CONTEXT + 3 :: 4] = STOP
    exact, rough = losses_of(rnn, tokens), losses_of(rnn, tokens, int8=True)
    assert np.abs(rough - exact).max() < 0.03
    assert np.abs(exact - losses_of(rnn, tokens, reset_token=-1)).mean() > 3 * np.abs(rough - exact).mean()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("cell", "int8", "rank"), KINDS)
def test_a_text_without_the_reset_token_costs_the_same_to_the_bit(cell: CellName, int8: bool, rank: int) -> None:
    rnn = network(cell, rank=rank)
    plain = losses_of(rnn, windows_of(), reset_token=-1, int8=int8)
    np.testing.assert_array_equal(losses_of(rnn, windows_of(), int8=int8), plain)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_heads_closed_form_knows_of_resets(cell: CellName) -> None:
    rnn, tokens = network(cell), windows_of()
    tokens[:, :, CONTEXT + 4] = STOP

    def estimate(text: Tokens, reset_token: int) -> NDArray[np.int32]:
        is_cold = np.ones(len(text), np.uint8)
        return es_core.rnn_head_gradient(
            *rnn.arguments, tokens=text, context=0, is_cold=is_cold, cell=cell, reset_token=reset_token
        )

    # A text of one document after another has the gradients of both, weighed by their lengths.
    first, second = tokens[:, :, : CONTEXT + 5].copy(), tokens[:, :, CONTEXT + 4 :].copy()
    n_first, n_second = first.shape[2] - 1, second.shape[2] - 1
    expected = n_first * estimate(first, -1).astype(np.float64)
    whole = estimate(tokens, STOP)
    rnn.initial_state[:] = 0.0
    expected += n_second * estimate(second, -1)
    np.testing.assert_allclose((n_first + n_second) * whole.astype(np.float64), expected, rtol=0, atol=20 * n_first)


def documents(*, control_variates: bool = False, logit_sigma: float = 0.0) -> Case:
    """A population on texts in which every third token ends a document, one of them at the very beginning."""
    tried = case(
        12,
        16,
        1,
        group_size=8,
        n_groups=4000,
        scored=6,
        control_variates=control_variates,
        logit_sigma=logit_sigma,
        discount=1.0,
        reset_token=2,
    )
    tried.tokens[tried.tokens == 2] = 1
    tried.tokens[:, :, 3::3] = 2
    tried.layout.split(tried.weights)["head.weight"][:] *= 2.0
    return tried


def spread(tried: Case) -> tuple[Array, Array]:
    """Mean and variance of the recurrent weights' estimate over 20 parts of the population."""
    parts = []
    for part in range(20):
        own = slice(part * 200, part * 200 + 200)
        _, estimate = run(tried._replace(tokens=tried.tokens[own], is_cold=tried.is_cold[own]), first_group=part * 200)
        recurrent = estimate[tried.layout.offsets[1] : tried.layout.offsets[2]]
        parts.append(recurrent / es_core.ESTIMATE_UNIT / 200)
    return np.mean(parts, axis=0), np.var(parts, axis=0)


@pytest.mark.parametrize("logit_sigma", [0.0, 0.1])
def test_control_variates_across_resets_leave_the_mean_and_lessen_the_variance(logit_sigma: float) -> None:
    plain = documents()._replace(logit_sigma=logit_sigma)
    controlled = documents(control_variates=True, logit_sigma=logit_sigma)
    controlled.weights[:] = 0.0
    controlled.weights[: plain.layout.size] = plain.weights
    parts = controlled.layout.split(controlled.weights)
    heads, guess = parts["head.weight"], parts["control.head"]
    if logit_sigma:
        parts["control.readout"][:], parts["control.readout_bias"][:] = heads, parts["head.bias"]
        parts["control.logits"][:] = np.eye(12)
    guess[:] = heads  # the exact effect of a unit on its own token's loss
    mean, variance = spread(plain)

    def excess(found: tuple[Array, Array]) -> float:
        """The greatest difference of the means, in standard errors."""
        error = np.sqrt((variance.mean() + found[1].mean()) / 20)
        return float(np.abs(found[0] - mean).max() / error)

    good = spread(controlled)
    assert good[1].mean() < 0.8 * variance.mean()
    assert excess(good) < 5
    chain = parts["control.next_l0"]
    chain[:] = parts["rnn.weight_hh_l0"]  # the exact effect of a state on the next one
    assert spread(controlled)[1].mean() < 0.3 * variance.mean()
    chain[:] = 0.5 * np.random.default_rng(9).standard_normal(chain.shape)
    assert excess(spread(controlled)) < 5


def test_credits_that_end_with_their_document_lessen_the_variance() -> None:
    tried = documents()
    mean, variance = spread(tried)
    # Without resets the same population credits noise with the losses of the next document, too.
    _, carried = spread(tried._replace(reset_token=-1))
    assert variance.mean() < 0.7 * carried.mean()
    assert np.abs(mean).max() > 5 * np.sqrt(variance.mean() / 20)


@pytest.mark.parametrize("reset_token", [-2, 19])
def test_a_reset_token_outside_of_the_vocabulary_is_refused(reset_token: int) -> None:
    with pytest.raises(ValueError, match=rf"reset_token: expected -1 \(none\) or a token below 19, got {reset_token}"):
        losses_of(network("tanh"), windows_of(), reset_token)
