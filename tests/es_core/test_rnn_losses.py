"""Losses of members: the fast path against the naive one, whatever the cell."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import es_core
from fedlearn.tasks.rnn.cells import CellName
from tests.es_core.networks import (
    CELL_NAMES,
    TOLERANCE,
    Network,
    Population,
    member_losses,
    network_of,
    population_of,
)


@st.composite
def evaluations(draw: st.DrawFn, cell: CellName) -> tuple[Network, Population, dict[str, Any]]:
    vocab, seed, is_antithetic = draw(st.integers(2, 70)), draw(st.integers(0, 99)), draw(st.booleans())
    network = network_of(
        cell,
        vocab,
        draw(st.integers(2, 70)),
        draw(st.integers(1, 4)),
        rank=draw(st.integers(0, 3)),
        seed=seed,
    )
    population = population_of(
        draw(st.sampled_from([vocab, min(vocab, 5)])),
        group_size=draw(st.integers(1, 9)) * (2 if is_antithetic else 1),
        n_groups=draw(st.integers(1, 3)),
        batch_size=draw(st.integers(1, 3)),
        context=draw(st.sampled_from([0, 0, 1, 6])),
        scored=draw(st.integers(1, 6)),
        seed=seed,
    )
    return network, population, {"antithetic": is_antithetic, "reset_token": draw(st.integers(-1, min(vocab, 5) - 1))}


@pytest.mark.parametrize("cell", CELL_NAMES)
@settings(deadline=None, max_examples=60)
@given(data=st.data(), threads=st.sampled_from([1, 2, 3]))
def test_fast_losses_agree_with_the_naive_ones(cell: CellName, data: st.DataObject, threads: int) -> None:
    network, population, options = data.draw(evaluations(cell))
    naive = member_losses(network, population, naive=True, **options)
    before = es_core.current_isa()
    try:
        for isa in es_core.supported_isas():
            es_core.select_isa(isa)
            fast = member_losses(network, population, threads=threads, **options)
            np.testing.assert_allclose(fast, naive, rtol=0, atol=TOLERANCE, err_msg=isa)
    finally:
        es_core.select_isa(before)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("cell", CELL_NAMES)
@pytest.mark.parametrize("rank", [0, 1, 8])
def test_fast_losses_agree_with_the_naive_ones_in_a_deep_network(rank: int, cell: CellName) -> None:
    network = network_of(cell, 12, 10, 16, rank=rank)
    population = population_of(12, group_size=7, n_groups=4, batch_size=2, context=5, scored=20)
    naive = member_losses(network, population, naive=True)
    np.testing.assert_allclose(member_losses(network, population), naive, rtol=0, atol=TOLERANCE)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("vocab", [2, 5000])
def test_long_windows_and_large_vocabularies_keep_their_precision(vocab: int) -> None:
    network = network_of("tanh", vocab, 6, 1, rank=1)
    population = population_of(vocab, group_size=2, n_groups=1, batch_size=1, context=0, scored=150)
    naive = member_losses(network, population, naive=True)
    np.testing.assert_allclose(member_losses(network, population), naive, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("size", [30.0, 1e4, 1e30])
def test_gates_that_are_wide_open_or_shut_stay_numbers(size: float, cell: CellName) -> None:
    network = network_of(cell, 11, 9, 2, rank=1)
    population = population_of(11, group_size=2, n_groups=2, batch_size=1, context=2, scored=9)
    network.parts["rnn.bias_l0"][:18], network.parts["rnn.bias_l1"][:18] = size, -size
    naive = member_losses(network, population, naive=True)
    np.testing.assert_allclose(member_losses(network, population), naive, rtol=0, atol=TOLERANCE)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_of_an_antithetic_pair_the_odd_member_has_the_noise_of_the_even_one_negated(rank: int, int8: bool) -> None:
    network = network_of("tanh", 9, 8, 2, rank=rank)
    population = population_of(9, group_size=6, n_groups=4, batch_size=2, context=4, scored=8)
    pairs = member_losses(network, population, antithetic=True, int8=int8)
    negated = member_losses(network, population, sigma=-0.05, int8=int8)
    np.testing.assert_array_equal(pairs[::2], member_losses(network, population, int8=int8)[::2])
    np.testing.assert_allclose(pairs[1::2], negated[::2], rtol=0, atol=TOLERANCE)


def test_members_have_losses_of_their_own_that_do_not_depend_on_their_neighbours() -> None:
    network = network_of("tanh", 9, 8, 2, rank=1)
    population = population_of(9, group_size=6, n_groups=4, batch_size=1, context=4, scored=8)
    together = member_losses(network, population, first_group=10)
    assert len(np.unique(together)) == len(together)
    later = population._replace(tokens=population.tokens[2:], is_cold=population.is_cold[2:])
    alone = member_losses(network, later, first_group=12)
    np.testing.assert_allclose(alone, together[12:], rtol=0, atol=TOLERANCE)


def test_population_of_many_blocks_equals_its_parts() -> None:
    network = network_of("tanh", 11, 8, 1, rank=1)
    population = population_of(11, group_size=2, n_groups=1100, batch_size=1, context=3, scored=4)
    whole = member_losses(network, population, first_group=0)
    for first in (0, 511, 512, 1023, 1024, 1099):
        own = slice(first, first + 1)
        part = population._replace(tokens=population.tokens[own], is_cold=population.is_cold[own])
        losses = member_losses(network, part, first_group=first)
        np.testing.assert_allclose(losses, whole[2 * first : 2 * first + 2], rtol=1e-6)


def test_cold_groups_skip_the_context_and_warm_ones_do_not() -> None:
    network = network_of("tanh", 9, 8, 2, rank=1)
    population = population_of(9, group_size=3, n_groups=2, batch_size=1, context=4, scored=8)
    population.is_cold[:] = [1, 0]
    other = population.tokens.copy()
    other[:, :, :4] = (other[:, :, :4] + 1) % 9
    losses = member_losses(network, population)
    changed = member_losses(network, population._replace(tokens=other))
    np.testing.assert_array_equal(changed[:3], losses[:3])
    assert (np.abs(changed[3:] - losses[3:]) > TOLERANCE).all()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("cell", CELL_NAMES)
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("rank", [0, 1])
def test_weights_that_are_no_finite_numbers_give_losses_that_are_none(poison: float, rank: int, cell: CellName) -> None:
    network = network_of(cell, 9, 8, 2, rank=rank)
    population = population_of(9, group_size=3, n_groups=2, batch_size=1, context=2, scored=4)
    for name in network.parts:
        broken = network._replace(weights=network.weights.copy())
        broken.parts[name].flat[-1] = poison
        assert np.isnan(member_losses(broken, population)).all(), name


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("int8", [False, True])
def test_a_certain_token_costs_nothing_and_never_less(int8: bool) -> None:
    """A server refuses whoever reports a loss below zero."""
    network = network_of("tanh", 9, 8, 1, rank=1)
    population = population_of(9, group_size=16, n_groups=2, batch_size=1, context=0, scored=3)
    population.tokens[:] = 4
    for certainty in np.geomspace(20.0, 1e5, 40):
        network.parts["head.bias"][4] = certainty
        losses = member_losses(network, population, int8=int8)
        assert (losses >= 0.0).all()
        assert losses.max() < 1e-6 * certainty


def test_huge_weights_give_no_crash_and_no_false_hope() -> None:
    network = network_of("tanh", 9, 8, 2, rank=1)
    network.weights[:] *= np.float32(1e30)
    population = population_of(9, group_size=3, n_groups=2, batch_size=1, context=0, scored=9)
    assert not (member_losses(network, population) < 1.0).all()


GOOD = population_of(9, group_size=3, n_groups=2, batch_size=1, context=2, scored=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": GOOD.tokens + np.uint16(9)}, "tokens: expected tokens below 9, got"),
        ({"tokens": GOOD.tokens[:, 0]}, "tokens: expected a C-contiguous array of uint16 with 3 dimensions"),
        ({"tokens": GOOD.tokens.astype(np.int64)}, "tokens: expected a C-contiguous array of uint16"),
        ({"tokens": GOOD.tokens[:, :, ::2]}, "tokens: expected a C-contiguous array of uint16"),
        ({"context": 6}, r"tokens: expected \[groups, sequences, context \+ scored \+ 1\]"),
        ({"context": -1}, r"tokens: expected \[groups, sequences, context \+ scored \+ 1\]"),
        ({"is_cold": np.zeros(3, dtype=np.uint8)}, "is_cold: expected one a group"),
        ({"is_cold": np.zeros(2)}, "is_cold: expected a C-contiguous array of uint8"),
        ({"first_member": 4}, "first_member: expected a multiple of the group size"),
        ({"group_size": 0}, "first_member: expected a multiple of the group size"),
        ({"antithetic": True}, "group_size: expected an even number with antithetic pairs, got 3"),
    ],
)
def test_wrong_trials_are_refused(change: dict[str, object], message: str) -> None:
    network = network_of("tanh", 9, 8, 1, rank=1).arguments
    arguments: dict[str, object] = {"seed": 1, "step": 1, "first_member": 3, "sigma": 0.1, **GOOD._asdict()}
    es_core.rnn_member_losses(*network, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        es_core.rnn_member_losses(*network, **(arguments | change))  # type: ignore[arg-type]


RNN = network_of("tanh", 9, 8, 1, rank=1)
WRONG_RANK = RNN.tensors.copy()
WRONG_RANK[1, 3] = 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (9, 8, 17)}, "1 to 16 layers, got 9, 8, 17"),
        ({"shape": (9, 1, 1)}, "a hidden size of 2 to 65536"),
        ({"shape": (9, 8, 2)}, "expected 9 tensors for this shape, got 6"),
        ({"shape": (8, 9, 1)}, r"expected tensor 0 of \[8, 9\]"),
        ({"tensors": WRONG_RANK}, "one rank for all matrices; tensor 1 has 2"),
        ({"tensors": RNN.tensors.astype(np.int32)}, "tensors: expected a C-contiguous array of int64"),
        ({"scales": RNN.scales[:5]}, "tensors, scales: expected 6 tensors"),
        ({"scales": RNN.scales.astype(np.float64)}, "scales: expected a C-contiguous array of float32"),
        ({"weights": RNN.weights[:-1]}, "tensors: expected row 5 to lie within"),
        ({"weights": RNN.weights.astype(np.float64)}, "weights: expected a C-contiguous array of float32"),
        ({"cell": "relu"}, "cell: expected tanh or gru or lstm, got relu"),
        ({"cell": "gru"}, "expected 7 tensors for this shape, got 6"),
        ({"cell": "lstm"}, r"expected tensor 0 of \[9, 32\]"),
    ],
)
def test_wrong_networks_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        member_losses(RNN._replace(**change), GOOD)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_what_only_tanh_units_have_is_refused(cell: CellName) -> None:
    network, population = network_of(cell, 9, 8, 1, rank=1), GOOD._asdict()
    with pytest.raises(ValueError, match=f"int8: expected the cell tanh, got {cell}; use float32"):
        member_losses(network, GOOD, int8=True)
    message = f"cell: expected tanh for noise on activations, got {cell}; put the noise on weights"
    with pytest.raises(ValueError, match=message):
        es_core.rnn_activation_gradient(
            *network.arguments,
            seed=1,
            step=1,
            first_member=0,
            sigma=0.1,
            logit_sigma=0.0,
            discount=0.7,
            cell=cell,
            **population,
        )
