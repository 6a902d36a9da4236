"""Noise on activations: the fast path against a plain numpy twin, member by member and token by token."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import ParameterLayout
from tests.es_core.activity_twin import FIRST_GROUP, Array, Case, Twin, case, run, run_whole


@st.composite
def cases(draw: st.DrawFn) -> Case:
    vocab = draw(st.integers(2, 70))
    return case(
        vocab,
        draw(st.integers(2, 70)),
        draw(st.integers(1, 3)),
        group_size=draw(st.sampled_from([2, 3, 5, 70])),
        n_groups=draw(st.sampled_from([1, 2, 9])),
        batch_size=draw(st.integers(1, 2)),
        context=draw(st.sampled_from([0, 1, 4])),
        scored=draw(st.integers(1, 5)),
        control_variates=draw(st.booleans()),
        logit_sigma=draw(st.sampled_from([0.0, 0.07])),
        correction=draw(st.sampled_from([0.0, 0.3, 1.0])),
        reset_token=draw(st.integers(-1, min(vocab, 4) - 1)),
        seed=draw(st.integers(0, 99)),
    )


def assert_like_twin(tried: Case) -> None:
    twin = Twin(tried)
    twin.run()
    losses, estimate, variance_left = run_whole(tried)
    np.testing.assert_allclose(losses, twin.losses, rtol=0, atol=2e-5)
    scale = np.abs(twin.estimate).max()
    np.testing.assert_allclose(estimate, twin.estimate, rtol=0, atol=2e-3 * scale + 9)
    before, after = twin.squares
    if before > 1e-6:
        assert variance_left == pytest.approx(after / before, rel=1e-2)


@settings(deadline=None, max_examples=25)
@given(cases())
def test_losses_and_estimate_agree_with_the_plain_twin(drawn: Case) -> None:
    assert_like_twin(drawn)


def test_long_texts_agree_with_the_plain_twin() -> None:
    # More rows than any instruction set's kernel copies at a time: 16 groups are summed together, 640 tokens.
    assert_like_twin(case(9, 13, 2, group_size=2, n_groups=17, batch_size=2, scored=20, control_variates=True))


def test_the_variance_left_is_that_of_all_groups() -> None:
    tried = case(5, 4, 1, group_size=2, n_groups=260, scored=2, control_variates=True)
    twin = Twin(tried)
    twin.run()
    before, after = twin.squares
    assert run_whole(tried)[2] == pytest.approx(after / before, rel=1e-4)


@pytest.mark.parametrize("isa", es_core.supported_isas())
@pytest.mark.parametrize(("logit_sigma", "hidden"), [(0.0, 40), (0.05, 40), (0.0, 150)])
def test_every_instruction_set_gives_the_same_up_to_rounding(isa: str, logit_sigma: float, hidden: int) -> None:
    tried = case(65, hidden, 2, group_size=8, n_groups=10, control_variates=True, logit_sigma=logit_sigma)
    losses, estimate = run(tried)
    chosen = es_core.current_isa()
    es_core.select_isa(isa)
    try:
        other_losses, other = run(tried)
    finally:
        es_core.select_isa(chosen)
    np.testing.assert_allclose(other_losses, losses, rtol=0, atol=2e-5)
    np.testing.assert_allclose(other, estimate, rtol=0, atol=2e-3 * np.abs(estimate).max())


@pytest.mark.parametrize("threads", [2, 3, 0])
def test_results_do_not_depend_on_the_threads(threads: int) -> None:
    tried = case(65, 33, 1, group_size=4, n_groups=300, control_variates=True)
    for one, several in zip(run(tried), run(tried, threads=threads), strict=True):
        np.testing.assert_array_equal(one, several)


def test_parts_add_up_to_the_whole() -> None:
    tried = case(30, 16, 1, group_size=4, n_groups=32, control_variates=True)
    _, whole = run(tried)
    _, first = run(tried._replace(tokens=tried.tokens[:16], is_cold=tried.is_cold[:16]))
    _, second = run(tried._replace(tokens=tried.tokens[16:], is_cold=tried.is_cold[16:]))
    # The second half's members have other numbers here, hence other noise; the head's closed form has none.
    head = slice(tried.layout.offsets[3], tried.layout.offsets[5])
    np.testing.assert_array_equal(first[head] + second[head], whole[head])


@pytest.mark.parametrize(("batch_size", "logit_sigma"), [(1, 0.0), (2, 0.1)])
def test_groups_of_every_block_have_noise_of_their_own(batch_size: int, logit_sigma: float) -> None:
    """A block is 256 groups; those of the next one go on where it ends."""
    shape = {"n_groups": 536, "group_size": 2, "batch_size": batch_size, "context": 2, "scored": 3}
    tried = case(11, 8, 1, control_variates=True, logit_sigma=logit_sigma, **shape)
    losses, whole = run(tried, threads=2)
    parts = np.zeros_like(whole)
    for first, last in ((0, 240), (240, 272), (272, 496), (496, 536)):
        part = tried._replace(tokens=tried.tokens[first:last], is_cold=tried.is_cold[first:last])
        part_losses, estimate = run(part, first_group=FIRST_GROUP + first)
        np.testing.assert_allclose(part_losses, losses[2 * first : 2 * last], rtol=1e-6)
        parts += estimate
    np.testing.assert_array_equal(parts, whole)


def test_the_closed_form_of_the_head_is_the_gradient_of_the_loss() -> None:
    tried = case(20, 12, 2, n_groups=4, scored=9)
    shape, layout, weights = tried.shape, tried.layout, tried.weights
    scales = np.array([tensor.scale for tensor in layout.tensors], dtype=np.float32)
    arguments = (shape, layout.table(0), scales)
    estimate = es_core.rnn_head_gradient(
        *arguments, weights, tokens=tried.tokens, context=tried.context, is_cold=tried.is_cold, threads=2
    )
    np.testing.assert_array_equal(estimate[: layout.offsets[-3]], 0)
    _, whole = run(tried)
    head = slice(layout.offsets[-3], layout.offsets[-1])
    np.testing.assert_array_equal(estimate[head], whole[head])


def with_controls(plain: Case) -> Case:
    """The same network with control matrices of zeros."""
    vocab, hidden, layers = plain.shape
    layout = case(vocab, hidden, layers, control_variates=True, logit_sigma=plain.logit_sigma).layout
    weights = np.concatenate([plain.weights, np.zeros(layout.size - plain.layout.size, np.float32)])
    return plain._replace(control_variates=True, layout=layout, weights=weights)


def follow_weights(tried: Case) -> None:
    """Gives the control matrices what backprop reads of the weights."""
    parts = tried.layout.split(tried.weights)
    layers = tried.shape[2]
    parts["control.head"][:] = parts["head.weight"]
    for layer in range(layers):
        parts[f"control.next_l{layer}"][:] = parts[f"rnn.weight_hh_l{layer}"]
        if layer < layers - 1:
            parts[f"control.above_l{layer}"][:] = parts[f"rnn.weight_ih_l{layer + 1}"]


@pytest.mark.parametrize("layers", [1, 2])
def test_control_variates_leave_the_mean_estimate_and_lessen_its_variance(layers: int) -> None:
    plain = case(12, 16, layers, group_size=8, n_groups=4000, scored=4, discount=0.8)
    controlled = with_controls(plain)
    n, parts = plain.layout.size, controlled.layout.split(controlled.weights)

    def spread(tried: Case) -> tuple[Array, float]:
        blocks = []
        for block in range(20):
            part = slice(block * 200, block * 200 + 200)
            _, estimate = run(tried._replace(tokens=tried.tokens[part], is_cold=tried.is_cold[part]))
            blocks.append(estimate[:n] / es_core.ESTIMATE_UNIT / 200)
        return np.mean(blocks, axis=0), float(np.var(blocks, axis=0).mean())

    mean, variance = spread(plain)
    for name, part in parts.items():
        if name.startswith("control."):
            part[:] = 0.2 * np.random.default_rng(3).standard_normal(part.shape)
    wild_mean, wild_variance = spread(controlled)
    follow_weights(controlled)
    controlled_mean, controlled_variance = spread(controlled)
    assert controlled_variance < 0.5 * variance
    for found, its_variance in ((wild_mean, wild_variance), (controlled_mean, controlled_variance)):
        error = np.sqrt((variance + its_variance) / 20)
        assert np.abs(found - mean).max() < 6 * error


@pytest.mark.parametrize(("layers", "reset_token"), [(1, -1), (3, -1), (2, 2)])
def test_a_chain_of_the_models_own_weights_predicts_all_of_the_first_order(layers: int, reset_token: int) -> None:
    plain = case(12, 16, layers, group_size=4, n_groups=50, scored=6, reset_token=reset_token)._replace(sigma=0.005)
    tried = with_controls(plain)
    assert run_whole(tried)[2] == pytest.approx(1.0, abs=1e-3)
    follow_weights(tried)
    assert run_whole(tried)[2] < 1e-3
    few, many = run(tried)[1], run(tried._replace(group_size=64))[1]
    n = plain.layout.size
    np.testing.assert_allclose(few[:n], many[:n], rtol=0, atol=0.02 * np.abs(many[:n]).max())


@pytest.mark.parametrize(("layers", "logit_sigma"), [(2, 0.0), (1, 0.1)])
def test_a_correction_weighs_what_is_beyond_the_prediction_and_teaches_the_chain_the_same(
    layers: int, logit_sigma: float
) -> None:
    tried = case(12, 16, layers, n_groups=20, control_variates=True, logit_sigma=logit_sigma)
    none, some, whole = (run(tried._replace(correction=weight))[1].astype(float) for weight in (0.0, 0.25, 1.0))
    n = tried.layout.offsets[-2 * layers - bool(logit_sigma)]
    np.testing.assert_array_equal(none[n:], whole[n:])
    np.testing.assert_allclose(some, 0.75 * none + 0.25 * whole, rtol=0, atol=4)
    assert np.abs(whole[:n] - none[:n]).max() > 0.1 * np.abs(whole[:n]).max()


@pytest.mark.parametrize("layers", [1, 2])
def test_a_correction_below_one_lessens_the_variance_and_leaves_the_mean_where_the_chain_is_right(layers: int) -> None:
    tried = with_controls(case(12, 16, layers, group_size=2, n_groups=50, scored=6)._replace(sigma=0.1))
    follow_weights(tried)
    n = tried.layout.offsets[-2 * layers]
    truth = run(tried._replace(group_size=256, sigma=0.005))[1][:n]
    shrunk, full = (run(tried._replace(correction=weight))[1][:n] for weight in (0.1, 1.0))
    assert np.square(shrunk - truth).sum() < 0.3 * np.square(full - truth).sum()


def test_without_control_variates_a_correction_changes_nothing() -> None:
    plain = case(12, 16, 1, n_groups=20)
    np.testing.assert_array_equal(run(plain._replace(correction=0.0))[1], run(plain)[1])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("layers", "reset_token"), [(1, -1), (2, 2)])
def test_the_chain_predicts_int8_trials_nearly_as_well(layers: int, reset_token: int) -> None:
    tried = with_controls(case(12, 33, layers, group_size=5, n_groups=100, scored=6, reset_token=reset_token))
    follow_weights(tried)
    assert run_whole(tried, int8=True)[2] < run_whole(tried)[2] + 2e-3 < 1e-2


def test_groups_with_a_loss_that_is_not_finite_count_zero() -> None:
    tried = case(9, 8, 1, n_groups=2, context=0, control_variates=True)
    broken = tried.weights.copy()
    tried.layout.split(broken)["head.bias"][0] = np.float32(3e38)
    tried.layout.split(broken)["head.weight"][0] = np.float32(3e38)
    losses, _ = run(tried, weights=broken)
    bad = ~np.isfinite(losses.reshape(2, -1)).all(axis=1)
    assert bad.any()
    only_bad = tried._replace(tokens=tried.tokens[bad], is_cold=tried.is_cold[bad])
    _, estimate, variance_left = run_whole(only_bad, weights=broken)
    assert not estimate.any()
    assert variance_left == 1.0


@pytest.mark.parametrize("logit_sigma", [0.0, 0.2])
def test_a_group_with_one_broken_text_counts_zero_with_all_its_texts(logit_sigma: float) -> None:
    tried = case(9, 8, 1, n_groups=1, batch_size=2, context=0, control_variates=True, logit_sigma=logit_sigma)
    parts = tried.layout.split(tried.weights)
    parts["rnn.weight_hh_l0"][:] = parts["head.weight"][0] = 0.0
    parts["head.weight"][0, :2] = 3e38
    parts["embedding.weight"][1, :2], parts["embedding.weight"][2, :2] = (
        -5.0,
        5.0,
    )  # token 0 is impossible, or too likely
    tried.tokens[:] = 1
    losses, estimate = run(tried)
    assert np.isfinite(losses).all()
    assert estimate.any()
    tried.tokens[0, 1] = 2
    losses, estimate = run(tried)
    assert not np.isfinite(losses).any()
    assert not estimate.any()


@pytest.mark.parametrize("logit_sigma", [0.0, 0.2])
@pytest.mark.parametrize("is_cold", [0, 1])
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_broken_group_takes_nothing_from_its_neighbours(broken: int, is_cold: int, logit_sigma: float) -> None:
    tried = case(9, 8, 1, n_groups=3, batch_size=2, context=1, scored=4, control_variates=True, logit_sigma=logit_sigma)
    parts = tried.layout.split(tried.weights)
    parts["rnn.weight_hh_l0"][:] = parts["head.weight"][0] = 0.0
    parts["head.weight"][0, :2] = 3e38
    parts["embedding.weight"][1, :2], parts["embedding.weight"][2, :2] = -5.0, 5.0  # token 0: impossible, too likely
    tried.tokens[:] = 1
    tried.is_cold[:] = is_cold

    def alone(group: int) -> NDArray[np.int32]:
        one = tried._replace(tokens=tried.tokens[group : group + 1], is_cold=tried.is_cold[group : group + 1])
        return run(one, first_group=FIRST_GROUP + group)[1]

    others = [alone(group) for group in range(3) if group != broken]
    tried.tokens[broken, 1, 2] = 2
    losses, estimate, variance_left = run_whole(tried)
    assert np.isfinite(losses.reshape(3, -1)).all(axis=1).tolist() == [group != broken for group in range(3)]
    assert variance_left != 1.0
    initial_state = tried.layout.split(estimate.astype(np.float32))["initial_state"]
    assert initial_state.any() == is_cold
    np.testing.assert_allclose(estimate, sum(others), rtol=0, atol=2)  # rounded together, or one by one


def test_sums_beyond_what_integers_hold_keep_their_sign() -> None:
    tried = case(9, 8, 1)
    vast = [msgspec.structs.replace(tensor, scale=1e30) for tensor in tried.layout.tensors]
    _, usual = run(tried)
    _, cut = run(tried._replace(layout=ParameterLayout(tuple(vast))))
    assert (usual > 0).any()
    assert (np.sign(cut)[usual != 0] == np.sign(usual)[usual != 0]).all()


def test_weights_that_are_not_finite_give_no_estimate() -> None:
    tried = case(9, 8, 1)
    broken = tried.weights.copy()
    broken[0] = np.nan
    losses, estimate = run(tried, weights=broken)
    assert np.isnan(losses).all()
    assert not estimate.any()


def test_int8_trials_tell_nearly_the_same() -> None:
    tried = case(65, 64, 1, group_size=64, n_groups=40, scored=8, context=0, control_variates=True)
    _, exact = run(tried)
    _, rough = run(tried, int8=True)
    assert np.corrcoef(exact, rough)[0, 1] > 0.98
    assert not np.array_equal(exact, rough)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"group_size": 1}, "group_size: expected at least 2"),
        ({"sigma": 0.0}, "sigma, logit_sigma: expected"),
        ({"discount": 1.5}, "discount, correction: expected 0 to 1"),
        ({"correction": -0.1}, "discount, correction: expected 0 to 1"),
        ({"correction": 1.1}, "discount, correction: expected 0 to 1"),
        ({"control_variates": True}, "expected 8 tensors for this shape, got 6"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        run(case(9, 8, 1)._replace(**changes))
