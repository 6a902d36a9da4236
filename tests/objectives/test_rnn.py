from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import es_core
from fedlearn.es.estimate import NO_ESTIMATE, decode_estimate
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.perturbation import Head, Perturbation
from fedlearn.es.update import Update
from fedlearn.objectives.base import Trials, run_trials
from fedlearn.objectives.rnn import VALIDATION_ROWS, RnnObjective
from fedlearn.objectives.rnn_layout import to_torch_names
from fedlearn.text.windows import Windows, WindowShape, cut_windows

Float32Array = NDArray[np.float32]
SEED = 21
VOCAB = 12
TOLERANCE = 1e-5  # nats per token


def rnn_of(
    n_layers: int = 1, *, context: int = 4, scored: int = 6, batch_size: int = 2, vocab_size: int = VOCAB
) -> RnnObjective:
    return RnnObjective(
        seed=SEED,
        vocab_size=vocab_size,
        hidden_size=10,
        n_layers=n_layers,
        window=WindowShape(batch_size=batch_size, context=context, scored=scored),
        embedding_scale=10.0,
    )


def weights_of(objective: RnnObjective) -> Float32Array:
    """None of them zero, units neither linear nor saturated."""
    weights = np.random.default_rng(1).standard_normal(objective.layout.size).astype(np.float32)
    return (0.3 * weights).astype(np.float32)


def block_of(n_tokens: int = 500, vocab_size: int = VOCAB) -> NDArray[np.uint16]:
    return np.random.default_rng(2).integers(0, vocab_size, n_tokens).astype(np.uint16)


def update_of(spans: tuple[tuple[int, int], ...], *, step: int, group_size: int = 4) -> Update:
    return Update(
        step=step,
        block=bytes(16),
        spans=spans,
        utilities=np.zeros(sum(count for _, count in spans), dtype=np.int8),
        rank=1,
        group_size=group_size,
        gradient_scale=1.0,
        optimizer="adam",
        learning_rate=0.1,
        beta1=0.9,
        beta2=0.99,
        epsilon=1e-8,
        antithetic=False,
        weight_decay=0.0,
        elapsed_s=0.0,
        shaping_scale=1.0,
    )


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


def group_windows(objective: RnnObjective, step: int, group: int) -> Windows:
    return cut_windows(block_of(), objective.window, seed=SEED, step=step, first_group=group, n_groups=1)


def window_loss(objective: RnnObjective, weights: Float32Array, perturbed: Float32Array, windows: Windows) -> float:
    """Nats per token of perturbed weights on the windows of one group, after a context read by `weights`."""
    context = objective.window.context
    tokens = windows.tokens[0]
    model = objective.language_model(weights, 0)
    if windows.is_cold[0]:
        state = objective.language_model(perturbed, 0).initial_state(len(tokens))
    else:
        state = model.initial_state(len(tokens))
        for place in range(context):
            state, _ = model.next_log_probabilities(state, tokens[:, place])
    total = 0.0
    perturbed_model = objective.language_model(perturbed, 0)
    for place in range(context, context + objective.window.scored):
        state, log_probabilities = perturbed_model.next_log_probabilities(state, tokens[:, place])
        total -= float(log_probabilities[np.arange(len(tokens)), tokens[:, place + 1]].sum())
    return total / objective.tokens_per_member


Tensor = Any  # of PyTorch, which may be absent


class TorchRnn:
    """The same network in PyTorch, with weights loaded under their PyTorch names."""

    def __init__(self, objective: RnnObjective, weights: Float32Array) -> None:
        self.torch: Any = pytest.importorskip("torch", reason="compares with PyTorch, the torch extra")
        vocab_size = objective.language_model(weights, 0).vocab_size
        named = {
            name: self.torch.from_numpy(array.copy())
            for name, array in to_torch_names(objective.layout, weights).items()
        }
        self.initial_state = named.pop("initial_state")
        n_layers, hidden_size = self.initial_state.shape
        nn = self.torch.nn
        self.module = nn.ModuleDict(
            {
                "rnn": nn.RNN(vocab_size, hidden_size, n_layers, nonlinearity="tanh", batch_first=True),
                "head": nn.Linear(hidden_size, vocab_size),
            }
        )
        self.module.load_state_dict(named)
        self.vocab_size = vocab_size

    def read(self, tokens: NDArray[np.uint16], state: Tensor) -> tuple[Tensor, Tensor]:
        """Logits after each of the tokens [rows, n], and the state."""
        text = self.torch.from_numpy(tokens.astype(np.int64))
        one_hot = self.torch.nn.functional.one_hot(text, self.vocab_size).float()
        with self.torch.no_grad():
            hidden, state = self.module["rnn"](one_hot, state)
            return self.module["head"](hidden), state

    def start(self, n_rows: int) -> Tensor:
        return self.initial_state[:, None].repeat(1, n_rows, 1)

    def loss(self, tokens: NDArray[np.uint16], state: Tensor) -> float:
        """Mean nats per token of tokens [rows, n + 1]."""
        logits, _ = self.read(tokens[:, :-1], state)
        targets = self.torch.from_numpy(tokens[:, 1:].astype(np.int64))
        return float(self.torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))


@pytest.mark.parametrize("n_layers", [1, 2])
def test_text_loss_equals_pytorchs(n_layers: int) -> None:
    objective = rnn_of(n_layers)
    weights = weights_of(objective)
    network = TorchRnn(objective, weights)
    n_per_row = 7
    text = block_of(VALIDATION_ROWS * n_per_row + 1)
    rows = np.stack([text[i * n_per_row : (i + 1) * n_per_row + 1] for i in range(VALIDATION_ROWS)])
    expected = network.loss(rows, network.start(VALIDATION_ROWS))
    assert objective.text_loss(weights, text, threads=2) == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_member_losses_equal_pytorchs(n_layers: int, rank: int, antithetic: bool) -> None:
    objective = rnn_of(n_layers)
    weights = weights_of(objective)
    context = objective.window.context
    unperturbed = TorchRnn(objective, weights)
    trials = Trials(
        step=3, perturbation=Perturbation(0.02, rank, antithetic=antithetic), group_size=2, first_member=32, n_members=4
    )
    losses = objective.member_losses(weights, block_of(), trials, threads=1)
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


def test_log_probabilities_equal_pytorchs() -> None:
    objective = rnn_of(2)
    weights = weights_of(objective)
    network = TorchRnn(objective, weights)
    model = objective.language_model(weights, stop_token=1)
    assert (model.vocab_size, model.stop_token) == (VOCAB, 1)
    state, torch_state = model.initial_state(3), network.start(3)
    for tokens in block_of(15).reshape(5, 3):
        state, log_probabilities = model.next_log_probabilities(state, tokens)
        logits, torch_state = network.read(tokens[:, np.newaxis], torch_state)
        expected = logits[:, 0].log_softmax(dim=-1).numpy()
        np.testing.assert_allclose(log_probabilities, expected, rtol=0, atol=TOLERANCE)


def test_log_probabilities_sum_to_one_and_to_the_text_loss() -> None:
    objective = rnn_of(2)
    weights = weights_of(objective)
    model = objective.language_model(weights, stop_token=0)
    text = block_of(21)
    state = model.initial_state(len(text) - 1)
    # Twenty predictions: the text is read in pieces of one token, each from the initial state.
    _, log_probabilities = model.next_log_probabilities(state, text[:-1])
    np.testing.assert_allclose(np.exp(log_probabilities).sum(axis=1), 1.0, rtol=0, atol=TOLERANCE)
    mean = -log_probabilities[np.arange(20), text[1:]].mean()
    assert objective.text_loss(weights, text, threads=1) == pytest.approx(float(mean), abs=TOLERANCE)


def test_reading_leaves_the_state_as_it_was() -> None:
    objective = rnn_of()
    model = objective.language_model(weights_of(objective), stop_token=0)
    state = model.initial_state(2)
    before = state.copy()
    after, _ = model.next_log_probabilities(state, np.array([1, 2], dtype=np.uint16))
    np.testing.assert_array_equal(state, before)
    assert not np.array_equal(after, before)


def test_sequences_may_be_taken_out_of_the_state() -> None:
    objective = rnn_of(2)
    model = objective.language_model(weights_of(objective), stop_token=0)
    state, _ = model.next_log_probabilities(model.initial_state(4), np.array([1, 2, 3, 4], dtype=np.uint16))
    tokens = np.array([5, 6], dtype=np.uint16)
    picked = model.next_log_probabilities(state[::-2], tokens)
    whole = model.next_log_probabilities(state, np.array([0, 6, 0, 5], dtype=np.uint16))
    for few, many in zip(picked, whole, strict=True):
        np.testing.assert_allclose(few, many[::-2], rtol=0, atol=TOLERANCE)


def test_a_text_of_one_token_has_no_loss() -> None:
    objective = rnn_of()
    with pytest.raises(ValueError, match="text: expected at least 2 tokens, got 1"):
        objective.text_loss(weights_of(objective), block_of(1), threads=1)


def test_initial_weights_predict_the_unigram_model() -> None:
    objective = rnn_of()
    counts = np.arange(VOCAB, dtype=np.int64)  # the first token was never seen: it counts once
    weights = objective.initial_weights(counts)
    assert weights.shape == (objective.layout.size,)
    assert weights.dtype == np.float32
    parts = objective.layout.split(weights)
    np.testing.assert_allclose(np.exp(parts["head.bias"]), np.maximum(counts, 1) / 67, rtol=1e-5)
    assert parts["embedding.weight"].std() == pytest.approx(1.0, abs=0.2)
    assert not parts["initial_state"].any()
    assert not parts["rnn.bias_l0"].any()
    text = block_of(5000)
    unigram = np.bincount(text, minlength=VOCAB)
    entropy = -(unigram / 5000 * np.log(unigram / 5000)).sum()
    assert objective.text_loss(objective.initial_weights(unigram), text, threads=1) == pytest.approx(entropy, abs=0.1)


def test_initial_weights_follow_from_the_seed() -> None:
    counts = np.ones(VOCAB, dtype=np.int64)
    np.testing.assert_array_equal(rnn_of().initial_weights(counts), rnn_of().initial_weights(counts))
    other = RnnObjective(
        seed=SEED + 1,
        vocab_size=VOCAB,
        hidden_size=10,
        n_layers=1,
        window=WindowShape(1, 1, 1),
        embedding_scale=10.0,
    )
    assert not np.array_equal(other.initial_weights(counts), rnn_of().initial_weights(counts))


def test_members_are_evaluated_the_same_whoever_asks_for_them() -> None:
    objective, block = rnn_of(2), block_of()
    weights = weights_of(objective)

    def losses(first_member: int, n_members: int) -> Float32Array:
        trials = Trials(
            step=9,
            perturbation=Perturbation(0.02, 1),
            group_size=4,
            first_member=first_member,
            n_members=n_members,
        )
        return objective.member_losses(weights, block, trials, threads=2)

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
    mask = objective.row_masks(update_of(((group * 4, 4),), step=step), block_of())
    assert mask is not None
    trials = Trials(step=step, perturbation=Perturbation(0.05, 1), group_size=4, first_member=group * 4, n_members=4)
    losses = objective.member_losses(weights, block_of(), trials, threads=1)
    windows = group_windows(objective, step, group)
    for index in range(4):
        noise = noise_of(layout, step=step, member=group * 4 + index, rank=1)
        parts = layout.split(noise)
        parts["embedding.weight"][mask[0, :VOCAB] == 0] = 0
        parts["initial_state"][:] *= mask[0, VOCAB]
        loss = window_loss(objective, weights, weights + np.float32(0.05) * noise, windows)
        assert losses[index] == pytest.approx(loss, abs=TOLERANCE)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 200), st.sampled_from([(1, 0), (1, 3), (2, 3)]))
def test_row_masks_name_exactly_the_rows_that_can_change_a_loss(step: int, group: int, shape: tuple[int, int]) -> None:
    n_layers, context = shape
    objective = rnn_of(n_layers, context=context)
    weights, layout = weights_of(objective), objective.layout
    mask = objective.row_masks(update_of(((group * 4, 4),), step=step), block_of())
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
    objective, block = rnn_of(), block_of()
    together = objective.row_masks(update_of(((8, 8), (60, 12)), step=5), block)
    apart = [objective.row_masks(update_of(((first, 4),), step=5), block) for first in (8, 12, 60, 64, 68)]
    assert together is not None
    np.testing.assert_array_equal(together, np.concatenate([mask for mask in apart if mask is not None]))
    assert together[:, VOCAB].tolist() == [0, 0, 0, 1, 0]  # group 16 is cold


def test_masked_rows_have_no_gradient() -> None:
    objective, block = rnn_of(), block_of()
    for first_member, is_cold in ((60, False), (64, True)):
        update = update_of(((first_member, 4),), step=5)
        mask = objective.row_masks(update, block)
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
    assert rnn_of().row_masks(update_of((), step=5), block_of()) is None


N_GROUPS = 4000


def summed_trials(noise: Perturbation, group_size: int = 64) -> Trials:
    return Trials(step=9, perturbation=noise, group_size=group_size, first_member=0, n_members=group_size * N_GROUPS)


@cache
def loss_gradient() -> dict[str, Float32Array]:
    """Of the mean loss over the windows of N_GROUPS groups, by differences along each parameter."""
    objective = rnn_of(context=0, batch_size=1)
    weights = weights_of(objective)
    still = summed_trials(Perturbation(1e-9, 1), group_size=2)

    def loss(shifted: Float32Array) -> float:
        return float(objective.member_losses(shifted, block_of(), still, threads=0).mean(dtype=np.float64))

    gradient = np.zeros_like(weights)
    for place in range(weights.size):
        shift = np.zeros_like(weights)
        shift[place] = 1e-2
        gradient[place] = (loss(weights + shift) - loss(weights - shift)) / 2e-2
    return objective.layout.split(gradient)


@pytest.mark.parametrize(
    ("space", "head"), [("weights", "closed-form"), ("activations", "perturbed"), ("activations", "closed-form")]
)
def test_summed_trials_tell_the_gradient(space: Literal["weights", "activations"], head: Head) -> None:
    noise = Perturbation(0.01, 1, space, head, logit_sigma=0.01, discount=1.0)
    objective = rnn_of(context=0, batch_size=1)
    results = run_trials(objective, weights_of(objective), block_of(), summed_trials(noise), threads=0)
    scales = np.concatenate([np.full(tensor.size, tensor.scale) for tensor in objective.layout.tensors])
    gradient = decode_estimate(objective.layout, results.estimate) / (es_core.ESTIMATE_UNIT * N_GROUPS * scales)
    told = objective.layout.split(gradient.astype(np.float32))
    for name, expected in loss_gradient().items():
        slope = (told[name] * expected).sum() / (expected**2).sum()
        assert slope == pytest.approx(1.0, abs=0.25), name
        assert np.corrcoef(told[name].reshape(-1), expected.reshape(-1))[0, 1] > 0.3, name


def test_replayed_trials_have_losses_alone() -> None:
    objective = rnn_of()
    trials = summed_trials(Perturbation(0.02, 1))
    results = run_trials(objective, weights_of(objective), block_of(), trials, threads=1)
    np.testing.assert_array_equal(
        results.losses, objective.member_losses(weights_of(objective), block_of(), trials, threads=1)
    )
    assert results.estimate is NO_ESTIMATE


def test_members_leave_a_head_in_closed_form_alone() -> None:
    objective, weights = rnn_of(), weights_of(rnn_of())
    silent = weights.copy()
    for name, part in objective.layout.split(silent).items():
        if not name.startswith("head."):
            part[:] = 0.0
    noise = Perturbation(0.02, 1, "weights", "closed-form")
    # A network whose units are silent differs only by its embedding's noise, which a zero head cannot show.
    objective.layout.split(silent)["head.weight"][:] = 0.0
    results = run_trials(objective, silent, block_of(), summed_trials(noise), threads=1)
    groups = results.losses.reshape(N_GROUPS, -1)
    np.testing.assert_allclose(groups - groups[:, :1], 0.0, atol=1e-6)


def test_control_matrices_are_part_of_the_layout_and_no_part_of_the_network() -> None:
    plain = rnn_of()
    objective = RnnObjective(
        seed=SEED,
        vocab_size=VOCAB,
        hidden_size=10,
        n_layers=1,
        window=plain.window,
        embedding_scale=10.0,
        control_taps=2,
        control_features="tokens",
    )
    added = objective.layout.tensors[len(plain.layout.tensors) :]
    assert [(tensor.name, tensor.shape) for tensor in added] == [
        ("control.l0.t0", (2 * VOCAB, 10)),
        ("control.l0.t1", (2 * VOCAB, 10)),
        ("control.logits", (2 * VOCAB, VOCAB)),
    ]
    counts = np.ones(VOCAB, dtype=np.int64)
    weights = objective.initial_weights(counts)
    assert not weights[plain.layout.size :].any()
    np.testing.assert_array_equal(weights[: plain.layout.size], plain.initial_weights(counts))
    text = block_of()
    assert objective.text_loss(weights, text, threads=1) == plain.text_loss(
        weights[: plain.layout.size], text, threads=1
    )
