from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import es_core
from fedlearn.tasks.rnn.layout import rnn_layout

Float32Array = NDArray[np.float32]
TOLERANCE = 1e-5  # nats per token


class Network(NamedTuple):
    shape: tuple[int, int, int]
    tensors: NDArray[np.int64]
    scales: Float32Array
    weights: Float32Array


class Trials(NamedTuple):
    group_size: int
    tokens: NDArray[np.uint16]
    context: int
    is_cold: NDArray[np.uint8]


def network(vocab: int, hidden: int, layers: int, *, rank: int, seed: int = 0) -> Network:
    """Weights of a size at which units are neither linear nor saturated."""
    generator = np.random.default_rng(seed)
    layout = rnn_layout(vocab, hidden, layers, embedding_scale=3.0)
    weights = generator.standard_normal(layout.size).astype(np.float32)
    for name, tensor in layout.split(weights).items():
        tensor *= 0.7 / hidden**0.5 if "weight_" in name or name == "head.weight" else 0.5
    scales = np.array([tensor.scale for tensor in layout.tensors], dtype=np.float32)
    return Network((vocab, hidden, layers), layout.table(rank), scales, weights)


def trials(
    vocab: int, *, group_size: int, n_groups: int, batch_size: int, context: int, scored: int, seed: int = 0
) -> Trials:
    generator = np.random.default_rng(seed + 1)
    tokens = generator.integers(0, vocab, (n_groups, batch_size, context + scored + 1)).astype(np.uint16)
    is_cold = generator.integers(0, 2, n_groups) if context else np.ones(n_groups)
    return Trials(group_size, tokens, context, is_cold.astype(np.uint8))


def member_losses(
    rnn: Network,
    tried: Trials,
    *,
    sigma: float = 0.05,
    threads: int = 1,
    naive: bool = False,
    int8: bool = False,
    antithetic: bool = False,
    first_group: int = 2**34,
) -> Float32Array:
    return es_core.rnn_member_losses(
        *rnn,
        seed=77,
        step=5,
        first_member=first_group * tried.group_size,
        group_size=tried.group_size,
        tokens=tried.tokens,
        context=tried.context,
        is_cold=tried.is_cold,
        sigma=sigma,
        antithetic=antithetic,
        int8=int8,
        threads=threads,
        naive=naive,
    )


@st.composite
def evaluations(draw: st.DrawFn) -> tuple[Network, Trials]:
    vocab = draw(st.integers(2, 70))
    rnn = network(
        vocab,
        draw(st.integers(2, 70)),
        draw(st.integers(1, 5)),
        rank=draw(st.integers(0, 3)),
        seed=draw(st.integers(0, 99)),
    )
    tried = trials(
        vocab,
        group_size=draw(st.integers(1, 9)),
        n_groups=draw(st.integers(1, 3)),
        batch_size=draw(st.integers(1, 3)),
        context=draw(st.sampled_from([0, 0, 1, 6])),
        scored=draw(st.integers(1, 6)),
        seed=draw(st.integers(0, 99)),
    )
    return rnn, tried


@settings(deadline=None, max_examples=60)
@given(evaluations(), st.sampled_from([1, 2, 3]))
def test_fast_losses_agree_with_the_naive_ones(evaluation: tuple[Network, Trials], threads: int) -> None:
    naive = member_losses(*evaluation, naive=True)
    before = es_core.current_isa()
    try:
        for isa in es_core.supported_isas():
            es_core.select_isa(isa)
            fast = member_losses(*evaluation, threads=threads)
            np.testing.assert_allclose(fast, naive, rtol=0, atol=TOLERANCE, err_msg=isa)
    finally:
        es_core.select_isa(before)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("rank", [0, 1, 8])
def test_fast_losses_agree_with_the_naive_ones_in_a_deep_network(rank: int) -> None:
    rnn = network(12, 10, 16, rank=rank)
    tried = trials(12, group_size=7, n_groups=4, batch_size=2, context=5, scored=20)
    assert set(tried.is_cold.tolist()) == {0, 1}
    np.testing.assert_allclose(member_losses(rnn, tried), member_losses(rnn, tried, naive=True), rtol=0, atol=TOLERANCE)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("vocab", [2, 5000])
def test_long_windows_and_large_vocabularies_keep_their_precision(vocab: int) -> None:
    rnn = network(vocab, 6, 1, rank=1)
    tried = trials(vocab, group_size=2, n_groups=1, batch_size=1, context=0, scored=150)
    np.testing.assert_allclose(member_losses(rnn, tried), member_losses(rnn, tried, naive=True), rtol=0, atol=TOLERANCE)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_of_an_antithetic_pair_the_odd_member_has_the_noise_of_the_even_one_negated(rank: int, int8: bool) -> None:
    rnn = network(9, 8, 2, rank=rank)
    tried = trials(9, group_size=6, n_groups=4, batch_size=2, context=4, scored=8)
    assert set(tried.is_cold.tolist()) == {0, 1}
    pairs = member_losses(rnn, tried, antithetic=True, int8=int8)
    negated = member_losses(rnn, tried, sigma=-0.05, int8=int8)
    np.testing.assert_array_equal(pairs[::2], member_losses(rnn, tried, int8=int8)[::2])
    np.testing.assert_allclose(pairs[1::2], negated[::2], rtol=0, atol=TOLERANCE)
    if not int8:
        naive = member_losses(rnn, tried, antithetic=True, naive=True)
        np.testing.assert_allclose(pairs, naive, rtol=0, atol=TOLERANCE)


def test_a_group_of_antithetic_pairs_is_even() -> None:
    tried = trials(9, group_size=3, n_groups=1, batch_size=1, context=0, scored=8)
    with pytest.raises(ValueError, match="group_size: expected an even number with antithetic pairs, got 3"):
        member_losses(network(9, 8, 1, rank=1), tried, antithetic=True)


def test_members_have_losses_of_their_own_that_do_not_depend_on_their_neighbours() -> None:
    rnn = network(9, 8, 2, rank=1)
    tried = trials(9, group_size=6, n_groups=4, batch_size=1, context=4, scored=8)
    together = member_losses(rnn, tried, first_group=10)
    assert len(np.unique(together)) == len(together)
    later = Trials(6, tried.tokens[2:], tried.context, tried.is_cold[2:])
    alone = member_losses(rnn, later, first_group=12)
    np.testing.assert_allclose(alone, together[12:], rtol=0, atol=TOLERANCE)


def test_cold_groups_skip_the_context_and_warm_ones_do_not() -> None:
    rnn = network(9, 8, 2, rank=1)
    tried = trials(9, group_size=3, n_groups=2, batch_size=1, context=4, scored=8)
    tried.is_cold[:] = [1, 0]
    other = tried.tokens.copy()
    other[:, :, : tried.context] = (other[:, :, : tried.context] + 1) % 9
    losses = member_losses(rnn, tried)
    changed = member_losses(rnn, tried._replace(tokens=other))
    np.testing.assert_array_equal(changed[:3], losses[:3])
    assert (np.abs(changed[3:] - losses[3:]) > TOLERANCE).all()


@pytest.mark.usefixtures("isa")
def test_text_losses_agree_with_naive_members_of_sigma_zero() -> None:
    rnn = network(37, 21, 3, rank=0)
    tried = trials(37, group_size=1, n_groups=53, batch_size=1, context=0, scored=9)
    expected = 9 * member_losses(rnn, tried, sigma=0.0, naive=True)
    initial = np.repeat(rnn.weights[np.newaxis, -63:].reshape(1, 3, 21), 53, axis=0)
    for threads in (1, 2):
        losses, _ = es_core.rnn_text_losses(*rnn, tokens=tried.tokens[:, 0], state=initial, threads=threads)
        np.testing.assert_allclose(losses, expected, rtol=0, atol=9 * TOLERANCE)


@pytest.mark.usefixtures("isa")
def test_a_text_may_be_read_in_pieces() -> None:
    rnn = network(11, 13, 2, rank=0)
    tokens = np.random.default_rng(3).integers(0, 11, (4, 12)).astype(np.uint16)
    start = np.random.default_rng(4).standard_normal((4, 2, 13)).astype(np.float32)
    whole, end = es_core.rnn_text_losses(*rnn, tokens=tokens, state=start)
    first, middle = es_core.rnn_text_losses(*rnn, tokens=np.ascontiguousarray(tokens[:, :6]), state=start)
    second, same_end = es_core.rnn_text_losses(*rnn, tokens=np.ascontiguousarray(tokens[:, 5:]), state=middle)
    np.testing.assert_allclose(first + second, whole, rtol=0, atol=1e-4)
    np.testing.assert_allclose(same_end, end, rtol=0, atol=TOLERANCE)


@pytest.mark.usefixtures("isa")
def test_log_probabilities_are_those_that_the_losses_sum() -> None:
    rnn = network(19, 13, 2, rank=0)
    tokens = np.random.default_rng(3).integers(0, 19, (4, 7)).astype(np.uint16)
    state = np.random.default_rng(4).standard_normal((4, 2, 13)).astype(np.float32)
    losses, end = es_core.rnn_text_losses(*rnn, tokens=tokens, state=state)
    total = np.zeros(4)
    for t in range(6):
        log_probabilities, state = es_core.rnn_next_log_probabilities(
            *rnn, tokens=np.ascontiguousarray(tokens[:, t : t + 1]), state=state
        )
        np.testing.assert_allclose(np.exp(log_probabilities).sum(axis=1), 1.0, rtol=0, atol=TOLERANCE)
        total -= log_probabilities[np.arange(4), tokens[:, t + 1]]
    np.testing.assert_allclose(total, losses, rtol=0, atol=1e-4)
    np.testing.assert_allclose(state, end, rtol=0, atol=TOLERANCE)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("rank", [0, 1])
def test_weights_that_are_no_finite_numbers_give_losses_that_are_none(poison: float, rank: int) -> None:
    rnn = network(9, 8, 2, rank=rank)
    tried = trials(9, group_size=3, n_groups=2, batch_size=1, context=2, scored=4)
    for place in (0, len(rnn.weights) // 2, len(rnn.weights) - 1):
        broken = rnn.weights.copy()
        broken[place] = poison
        assert np.isnan(member_losses(rnn._replace(weights=broken), tried)).all()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("int8", [False, True])
def test_a_certain_token_costs_nothing_and_never_less(int8: bool) -> None:
    """A server refuses whoever reports a loss below zero."""
    rnn = network(9, 8, 1, rank=1)
    tried = trials(9, group_size=16, n_groups=2, batch_size=1, context=0, scored=3)
    tried.tokens[:] = 4
    bias = rnn_layout(9, 8, 1, embedding_scale=3.0).split(rnn.weights)["head.bias"]
    for certainty in np.geomspace(20.0, 1e5, 40):
        bias[4] = certainty
        losses = member_losses(rnn, tried, int8=int8)
        assert (losses >= 0.0).all()
        assert losses.max() < 1e-6 * certainty


@pytest.mark.usefixtures("isa")
def test_nan_weights_give_nan_texts() -> None:
    rnn = network(9, 8, 2, rank=0)
    rnn.weights[:] = np.nan
    state = np.zeros((3, 2, 8), dtype=np.float32)
    tokens = np.zeros((3, 4), dtype=np.uint16)
    assert np.isnan(es_core.rnn_text_losses(*rnn, tokens=tokens, state=state)[0]).all()
    assert np.isnan(es_core.rnn_next_log_probabilities(*rnn, tokens=tokens, state=state)[0]).all()


def test_huge_weights_give_no_crash_and_no_false_hope() -> None:
    rnn = network(9, 8, 2, rank=1)
    rnn.weights[:] *= np.float32(1e30)
    losses = member_losses(rnn, trials(9, group_size=3, n_groups=2, batch_size=1, context=0, scored=9))
    assert not (losses < 1.0).all()


GOOD = trials(9, group_size=3, n_groups=2, batch_size=1, context=2, scored=4)


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
    ],
)
def test_wrong_trials_are_refused(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"seed": 1, "step": 1, "first_member": 3, "sigma": 0.1, **GOOD._asdict()}
    es_core.rnn_member_losses(*network(9, 8, 1, rank=1), **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        es_core.rnn_member_losses(*network(9, 8, 1, rank=1), **(arguments | change))  # type: ignore[arg-type]


RNN = network(9, 8, 1, rank=1)
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
    ],
)
def test_wrong_networks_are_refused(change: dict[str, object], message: str) -> None:
    rnn = RNN._asdict() | change
    with pytest.raises(ValueError, match=message):
        member_losses(Network(**rnn), GOOD)


@pytest.mark.parametrize("read", [es_core.rnn_text_losses, es_core.rnn_next_log_probabilities])
def test_wrong_texts_are_refused(read: object) -> None:
    assert callable(read)
    tokens, state = np.zeros((2, 3), dtype=np.uint16), np.zeros((2, 1, 8), dtype=np.float32)
    read(*RNN, tokens=tokens, state=state)
    with pytest.raises(ValueError, match="tokens: expected tokens below 9, got 9"):
        read(*RNN, tokens=tokens + np.uint16(9), state=state)
    with pytest.raises(ValueError, match=r"tokens: expected \[rows, at least"):
        read(*RNN, tokens=tokens[:, :0], state=state)
    with pytest.raises(ValueError, match=r"state: expected \[2, 1, 8\], got"):
        read(*RNN, tokens=tokens, state=state[:1])
    with pytest.raises(ValueError, match=r"state: expected \[2, 1, 8\], got"):
        read(*RNN, tokens=tokens, state=np.zeros((2, 1, 9), dtype=np.float32))


def test_population_of_many_blocks_equals_its_parts() -> None:
    rnn = network(11, 8, 1, rank=1)
    tried = trials(11, group_size=2, n_groups=1100, batch_size=1, context=3, scored=4)
    whole = member_losses(rnn, tried, first_group=0)
    for first in (0, 511, 512, 1023, 1024, 1099):
        part = tried._replace(tokens=tried.tokens[first : first + 1], is_cold=tried.is_cold[first : first + 1])
        np.testing.assert_allclose(
            member_losses(rnn, part, first_group=first), whole[2 * first : 2 * first + 2], rtol=1e-6
        )
