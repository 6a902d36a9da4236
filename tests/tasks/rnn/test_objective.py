import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.invitation import Option
from fedlearn.tasks.rnn.cells import CellName
from fedlearn.tasks.rnn.examiner import text_loss
from fedlearn.tasks.rnn.language_model import RnnLanguageModel
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.text.windows import TokenWindows, cut_windows
from tests.run_folders import spanning
from tests.tasks.rnn.networks import SEED, TOLERANCE, VOCAB, TorchRnn, rnn_of, text_of, weights_of

CELLS: list[CellName] = ["tanh", "gru", "lstm"]
OPTIONS: dict[str, Option] = {
    "vocab_size": VOCAB,
    "hidden_size": 10,
    "n_layers": 2,
    "context": 4,
    "sequence_length": 6,
    "batch_size": 2,
    "embedding_scale": 10.0,
    "precision": "float32",
}


def data_of(n_tokens: int = 500) -> Columns:
    return {"tokens": text_of(n_tokens)}


def noise_of(layout: ParameterLayout, *, step: int, member: int, rank: int) -> Float32Array:
    """The perturbation of unit variance, times each tensor's scale."""
    noise = np.zeros(layout.size, dtype=np.float32)
    for index, (tensor, part) in enumerate(zip(layout.tensors, layout.split(noise).values(), strict=True)):

        def signs(factor: int, count: int, index: int = index) -> NDArray[np.float64]:
            return es_core.sign_noise(SEED, step, member, index, factor, 0, count).astype(np.float64)

        if rank == 0 or not tensor.is_matrix:
            part[:] = signs(0, tensor.size).reshape(tensor.shape)
        else:
            products = [np.outer(signs(2 * k, tensor.shape[0]), signs(2 * k + 1, tensor.shape[1])) for k in range(rank)]
            part[:] = np.sum(products, axis=0) / rank**0.5
        part *= tensor.scale
    return noise


def group_windows(objective: RnnObjective, step: int, group: int) -> TokenWindows:
    return cut_windows(text_of(), objective.window, seed=SEED, step=step, first_group=group, n_groups=1)


def window_loss(
    objective: RnnObjective, weights: Float32Array, perturbed: Float32Array, windows: TokenWindows
) -> float:
    """Nats per token of perturbed weights on the windows of one group, after a context read by `weights`."""
    context = objective.window.context
    tokens = windows.tokens[0]
    model = RnnLanguageModel(objective, weights)
    if windows.is_cold[0]:
        state = RnnLanguageModel(objective, perturbed).initial_state(len(tokens))
    else:
        state = model.initial_state(len(tokens))
        for place in range(context):
            state, _ = model.next_log_probabilities(state, tokens[:, place])
    total = 0.0
    perturbed_model = RnnLanguageModel(objective, perturbed)
    for place in range(context, context + objective.window.scored):
        state, log_probabilities = perturbed_model.next_log_probabilities(state, tokens[:, place])
        total -= float(log_probabilities[np.arange(len(tokens)), tokens[:, place + 1]].sum())
    return total / objective.work_per_member


@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_member_losses_equal_pytorchs(n_layers: int, rank: int, antithetic: bool, cell: CellName) -> None:
    objective = rnn_of(n_layers, cell=cell)
    weights = weights_of(objective)
    context = objective.window.context
    unperturbed = TorchRnn(objective, weights)
    trials = Trials(
        step=3, perturbation=Perturbation(0.02, rank, antithetic=antithetic), group_size=2, first_member=32, n_members=4
    )
    losses = objective.evaluate(weights, data_of(), trials, threads=1)
    for member, loss in enumerate(losses, start=trials.first_member):
        noise = noise_of(objective.layout, step=3, member=member, rank=rank)
        if antithetic and member % 2:
            noise = -noise_of(objective.layout, step=3, member=member - 1, rank=rank)
        perturbed = TorchRnn(objective, weights + np.float32(trials.perturbation.sigma) * noise)
        windows = group_windows(objective, 3, member // 2)
        tokens = windows.tokens[0]
        if windows.is_cold[0]:
            state = perturbed.start(len(tokens))
        else:
            _, state = unperturbed.read(tokens[:, :context], unperturbed.start(len(tokens)))
        assert bool(windows.is_cold[0]) == (member < 34)
        assert loss == pytest.approx(perturbed.loss(tokens[:, context:], state), abs=TOLERANCE)


def test_its_work_is_counted_in_tokens() -> None:
    objective = rnn_of()
    assert (objective.unit, objective.work_per_member) == ("tokens", 2 * 6)


def test_initial_weights_predict_the_unigram_model() -> None:
    counts = np.arange(VOCAB, dtype=np.int64)  # the first token was never seen: it counts once
    objective = rnn_of(unigram_counts=counts)
    weights = objective.initial_weights()
    assert weights.shape == (objective.layout.size,)
    assert weights.dtype == np.float32
    parts = objective.layout.split(weights)
    np.testing.assert_allclose(np.exp(parts["head.bias"]), np.maximum(counts, 1) / 67, rtol=1e-5)
    assert parts["embedding.weight"].std() == pytest.approx(1.0, abs=0.2)
    assert not parts["initial_state"].any()
    assert not parts["rnn.bias_l0"].any()
    text = text_of(5000)
    unigram = np.bincount(text, minlength=VOCAB)
    entropy = -(unigram / 5000 * np.log(unigram / 5000)).sum()
    informed = rnn_of(unigram_counts=unigram)
    assert text_loss(informed, informed.initial_weights(), text, threads=1) == pytest.approx(entropy, abs=0.1)


def test_without_counts_all_tokens_begin_alike() -> None:
    objective = rnn_of()
    bias = objective.layout.split(objective.initial_weights())["head.bias"]
    np.testing.assert_allclose(bias, np.log(1 / VOCAB), rtol=1e-6)


def test_initial_weights_follow_from_the_seed() -> None:
    np.testing.assert_array_equal(rnn_of().initial_weights(), rnn_of().initial_weights())
    assert not np.array_equal(rnn_of(seed=SEED + 1).initial_weights(), rnn_of().initial_weights())


def test_options_make_the_objective_that_they_describe() -> None:
    built, plain = RnnObjective.from_options(OPTIONS, SEED), rnn_of(2)
    assert (built.layout, built.shape, built.window) == (plain.layout, plain.shape, plain.window)
    np.testing.assert_array_equal(built.initial_weights(), plain.initial_weights())
    controlled = RnnObjective.from_options({**OPTIONS, "control_variates": True, "control_residuals": "readout"}, SEED)
    assert len(controlled.layout.tensors) == len(plain.layout.tensors) + 7
    assert (built.reset_token, RnnObjective.from_options({**OPTIONS, "reset_token": 3}, SEED).reset_token) == (-1, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 1},
        {"hidden_size": 2**16 + 1},
        {"vocab_size": 2**16 + 1},
        {"n_layers": 17},
        {"context": -1},
        {"sequence_length": 0},
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"precision": "float64"},
        {"control_variates": 2},
        {"control_residuals": "words"},
        {"reset_token": -2},
        {"reset_token": VOCAB},
        {"dropout": 0.5},
        {"embedding_scale": "large"},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(change: dict[str, Option]) -> None:
    with pytest.raises(ValueError, match=r"options: .*; is this version of fedlearn older than the server's\?"):
        RnnObjective.from_options({**OPTIONS, **change}, SEED)


def test_an_option_that_is_missing_is_named() -> None:
    fewer = {key: value for key, value in OPTIONS.items() if key != "n_layers"}
    with pytest.raises(ValueError, match=r"options: .*n_layers"):
        RnnObjective.from_options(fewer, SEED)


def test_members_are_evaluated_the_same_whoever_asks_for_them() -> None:
    objective, data = rnn_of(2), data_of()
    weights = weights_of(objective)

    def losses(first_member: int, n_members: int) -> Float32Array:
        trials = Trials(
            step=9,
            perturbation=Perturbation(0.02, 1),
            group_size=4,
            first_member=first_member,
            n_members=n_members,
        )
        return objective.evaluate(weights, data, trials, threads=2)

    np.testing.assert_allclose(losses(72, 8), losses(60, 40)[12:20], rtol=0, atol=TOLERANCE)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, 2**40), st.sampled_from([(1, 0), (1, 3), (2, 3)]), st.booleans())
def test_noise_in_masked_rows_never_changes_a_loss(
    step: int, group: int, shape: tuple[int, int], is_cold: bool
) -> None:
    n_layers, context = shape
    group = group // 16 * 16 + (0 if is_cold else 5)
    objective = rnn_of(n_layers, context=context)
    weights, layout = weights_of(objective), objective.layout
    mask = objective.row_masks(spanning((group * 4, 4), step=step), data_of())
    assert mask is not None
    trials = Trials(step=step, perturbation=Perturbation(0.05, 1), group_size=4, first_member=group * 4, n_members=4)
    losses = objective.evaluate(weights, data_of(), trials, threads=1)
    windows = group_windows(objective, step, group)
    for index in range(4):
        noise = noise_of(layout, step=step, member=group * 4 + index, rank=1)
        parts = layout.split(noise)
        parts["embedding.weight"][mask[0, :VOCAB] == 0] = 0
        parts["initial_state"][:] *= mask[0, VOCAB]
        loss = window_loss(objective, weights, weights + np.float32(0.05) * noise, windows)
        assert losses[index] == pytest.approx(loss, abs=TOLERANCE)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 200), st.sampled_from([(1, 0), (1, 3), (2, 3)]), st.sampled_from(CELLS))
def test_row_masks_name_exactly_the_rows_that_can_change_a_loss(
    step: int, group: int, shape: tuple[int, int], cell: CellName
) -> None:
    n_layers, context = shape
    objective = rnn_of(n_layers, context=context, cell=cell)
    weights, layout = weights_of(objective), objective.layout
    mask = objective.row_masks(spanning((group * 4, 4), step=step), data_of())
    assert mask is not None
    assert mask.shape == (1, VOCAB + 1)
    windows = group_windows(objective, step, group)
    loss = window_loss(objective, weights, weights, windows)
    for row in range(VOCAB + 1):
        perturbed = weights.copy()
        parts = layout.split(perturbed)
        moved = parts["embedding.weight"][row] if row < VOCAB else parts["initial_state"]
        moved += np.float32(1.0)
        assert (window_loss(objective, weights, perturbed, windows) != loss) == bool(mask[0, row])


def test_row_masks_follow_the_groups_of_the_spans() -> None:
    objective, data = rnn_of(), data_of()
    together = objective.row_masks(spanning((8, 8), (60, 12), step=5), data)
    apart = [objective.row_masks(spanning((first, 4), step=5), data) for first in (8, 12, 60, 64, 68)]
    assert together is not None
    np.testing.assert_array_equal(together, np.concatenate([mask for mask in apart if mask is not None]))
    assert together[:, VOCAB].tolist() == [0, 0, 0, 1, 0]  # group 16 is cold


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({}, "data: expected a column 'tokens', got none"),
        ({"words": text_of()}, "data: expected a column 'tokens', got words"),
        ({"tokens": text_of().astype(np.int64)}, r"expected one dimension of uint8 or uint16, got int64 \[500\]"),
        ({"tokens": text_of().reshape(2, 250)}, r"expected one dimension of uint8 or uint16, got uint16 \[2, 250\]"),
        ({"tokens": text_of() + np.uint16(VOCAB)}, f"expected tokens below {VOCAB}, got"),
        ({"tokens": text_of(10)}, "expected at least 11 tokens"),
    ],
)
def test_data_that_are_no_text_of_this_network_are_refused(data: Columns, complaint: str) -> None:
    objective = rnn_of()
    trials = Trials(5, Perturbation(0.02, 1), group_size=4, first_member=0, n_members=8)
    with pytest.raises(ValueError, match=complaint):
        objective.evaluate(weights_of(objective), data, trials, threads=1)
    with pytest.raises(ValueError, match=complaint):
        objective.row_masks(spanning((0, 8), step=5), data)


def test_masked_rows_have_no_gradient() -> None:
    objective, data = rnn_of(), data_of()
    for first_member, is_cold in ((60, False), (64, True)):
        update = spanning((first_member, 4), step=5)
        mask = objective.row_masks(update, data)
        assert mask is not None
        estimate = es_core.estimate_gradient(
            objective.layout.table(1),
            objective.layout.size,
            seed=SEED,
            step=5,
            group_size=4,
            spans=list(update.spans),
            utilities=np.array([1, 2, 4, 8], dtype=np.int8),  # no sum of these with signs is zero
            row_masks=mask,
        )
        parts = objective.layout.split(estimate.astype(np.float32))
        assert parts["embedding.weight"].any(axis=1).tolist() == mask[0, :VOCAB].astype(bool).tolist()
        assert parts["initial_state"].any() == is_cold
        assert parts["head.weight"].all()


def test_an_update_without_members_has_no_masks() -> None:
    assert rnn_of().row_masks(spanning(step=5), data_of()) is None


def test_control_matrices_are_part_of_the_layout_and_no_part_of_the_network() -> None:
    plain = rnn_of()
    objective = RnnObjective(
        seed=SEED,
        vocab_size=VOCAB,
        hidden_size=10,
        n_layers=1,
        window=plain.window,
        embedding_scale=10.0,
        control_variates=True,
        control_residuals="readout",
    )
    added = objective.layout.tensors[len(plain.layout.tensors) :]
    assert [(tensor.name, tensor.shape) for tensor in added] == [
        ("control.head", (VOCAB, 10)),
        ("control.next_l0", (10, 10)),
        ("control.readout", (VOCAB, 10)),
        ("control.readout_bias", (VOCAB,)),
        ("control.logits", (VOCAB, VOCAB)),
    ]
    weights = objective.initial_weights()
    assert not weights[plain.layout.size :].any()
    np.testing.assert_array_equal(weights[: plain.layout.size], plain.initial_weights())
    text = text_of()
    plain_weights = weights[: plain.layout.size]
    assert text_loss(objective, weights, text, threads=1) == text_loss(plain, plain_weights, text, threads=1)


@pytest.mark.parametrize("control_variates", [True, False])
def test_only_control_variates_say_the_variance_left(control_variates: bool) -> None:
    given: dict[str, Option] = {"control_residuals": "head"} if control_variates else {}
    objective = RnnObjective.from_options({**OPTIONS, **given, "control_variates": control_variates}, SEED)
    weights = weights_of(objective)
    noise = Perturbation(0.02, 1, "activations", "closed-form", discount=0.5)
    trials = Trials(step=9, perturbation=noise, group_size=4, first_member=72, n_members=8)
    said = objective.gradient_sum(weights, data_of(), trials, threads=1).variance_left
    assert said is None if not control_variates else said is not None and said > 0.0
    of_weights = msgspec.structs.replace(trials, perturbation=Perturbation(0.02, 1, head="closed-form"))
    assert objective.gradient_sum(weights, data_of(), of_weights, threads=1).variance_left is None
