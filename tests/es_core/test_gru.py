"""GRU units: the fast path against the naive one, and both against torch.nn.GRU."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.noise import member_noise, perturbed
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials

Float32Array = NDArray[np.float32]
Shape = tuple[int, int, int]
"""Vocabulary, hidden units, layers."""

TOLERANCE = 1e-5  # nats per token
SEED, STEP, SIGMA = 77, 5, 0.05


def gru_layout(shape: Shape) -> ParameterLayout:
    vocab, hidden, layers = shape
    tensors = [TensorSpec("embedding.weight", (vocab, 3 * hidden), scale=3.0)]
    for layer in range(layers):
        if layer > 0:
            tensors.append(TensorSpec(f"rnn.weight_ih_l{layer}", (3 * hidden, hidden)))
        tensors.append(TensorSpec(f"rnn.weight_hh_l{layer}", (3 * hidden, hidden)))
        tensors.append(TensorSpec(f"rnn.bias_ih_l{layer}", (3 * hidden,)))
        tensors.append(TensorSpec(f"rnn.bias_hn_l{layer}", (hidden,)))
    tensors += [TensorSpec("head.weight", (vocab, hidden)), TensorSpec("head.bias", (vocab,), scale=2.0)]
    return ParameterLayout((*tensors, TensorSpec("initial_state", (layers * hidden,), scale=0.5)))


class Gru:
    """Weights of a size at which gates are neither open nor shut."""

    def __init__(self, shape: Shape, *, seed: int = 0) -> None:
        self.shape = shape
        self.layout = gru_layout(shape)
        self.weights = np.random.default_rng(seed).standard_normal(self.layout.size).astype(np.float32)
        for name, tensor in self.layout.split(self.weights).items():
            tensor *= 1.4 / shape[1] ** 0.5 if "weight_" in name or name == "head.weight" else 0.5

    def arguments(self, rank: int = 0) -> tuple[Shape, NDArray[np.int64], Float32Array, Float32Array]:
        table = np.array([(*row[:3], row[3], -1) for row in self.layout.table(rank).tolist()], dtype=np.int64)
        scales = np.array([tensor.scale for tensor in self.layout.tensors], dtype=np.float32)
        return self.shape, table, scales, self.weights

    @property
    def initial_state(self) -> Float32Array:
        """[layers, hidden]"""
        _, hidden, layers = self.shape
        return self.weights[-layers * hidden :].reshape(layers, hidden)


class Text:
    """What groups of members read."""

    def __init__(
        self, vocab: int, *, group_size: int, n_groups: int, batch_size: int, context: int, scored: int
    ) -> None:
        generator = np.random.default_rng(1)
        self.group_size, self.context = group_size, context
        self.tokens = generator.integers(0, vocab, (n_groups, batch_size, context + scored + 1)).astype(np.uint16)
        is_cold = np.arange(n_groups) % 2 if context else np.ones(n_groups)
        self.is_cold = is_cold.astype(np.uint8)


def member_losses(gru: Gru, text: Text, *, rank: int, sigma: float = SIGMA, **options: Any) -> Float32Array:  # noqa: ANN401
    return es_core.rnn_member_losses(
        *gru.arguments(rank),
        seed=SEED,
        step=STEP,
        first_member=2**33 * text.group_size,
        group_size=text.group_size,
        tokens=text.tokens,
        context=text.context,
        is_cold=text.is_cold,
        sigma=sigma,
        cell="gru",
        **options,
    )


@st.composite
def evaluations(draw: st.DrawFn) -> tuple[Gru, Text]:
    shape = draw(st.tuples(st.integers(2, 40), st.integers(2, 40), st.integers(1, 3)))
    text = Text(
        shape[0],
        group_size=draw(st.integers(1, 5).map(lambda half: 2 * half)),
        n_groups=draw(st.integers(1, 3)),
        batch_size=draw(st.integers(1, 3)),
        context=draw(st.sampled_from([0, 1, 6])),
        scored=draw(st.integers(1, 6)),
    )
    return Gru(shape, seed=draw(st.integers(0, 99))), text


@settings(deadline=None, max_examples=30)
@given(evaluations(), st.integers(0, 3), st.booleans(), st.sampled_from([1, 3]))
def test_fast_losses_agree_with_the_naive_ones(
    evaluation: tuple[Gru, Text], rank: int, antithetic: bool, threads: int
) -> None:
    naive = member_losses(*evaluation, rank=rank, antithetic=antithetic, naive=True)
    before = es_core.current_isa()
    try:
        for isa in es_core.supported_isas():
            es_core.select_isa(isa)
            fast = member_losses(*evaluation, rank=rank, antithetic=antithetic, threads=threads)
            np.testing.assert_allclose(fast, naive, rtol=0, atol=TOLERANCE, err_msg=isa)
    finally:
        es_core.select_isa(before)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("rank", [0, 1, 8])
def test_fast_losses_agree_with_the_naive_ones_in_a_deep_network(rank: int) -> None:
    gru = Gru((12, 10, 16))
    text = Text(12, group_size=7, n_groups=4, batch_size=2, context=5, scored=20)
    naive = member_losses(gru, text, rank=rank, naive=True)
    np.testing.assert_allclose(member_losses(gru, text, rank=rank), naive, rtol=0, atol=TOLERANCE)


def test_gates_that_are_wide_open_or_shut_stay_numbers() -> None:
    gru = Gru((11, 9, 2))
    parts = gru.layout.split(gru.weights)
    text = Text(11, group_size=2, n_groups=2, batch_size=1, context=2, scored=9)
    for size in (30.0, 1e4, 1e30):
        parts["rnn.bias_ih_l0"][:18], parts["rnn.bias_ih_l1"][:18] = size, -size
        naive = member_losses(gru, text, rank=1, naive=True)
        np.testing.assert_allclose(member_losses(gru, text, rank=1), naive, rtol=0, atol=TOLERANCE)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_weights_that_are_no_finite_numbers_give_losses_that_are_none(poison: float) -> None:
    gru = Gru((9, 8, 2))
    gru.layout.split(gru.weights)["rnn.bias_hn_l1"][3] = poison
    text = Text(9, group_size=3, n_groups=2, batch_size=1, context=2, scored=4)
    assert np.isnan(member_losses(gru, text, rank=1)).all()


@pytest.mark.usefixtures("isa")
def test_log_probabilities_are_those_that_the_losses_sum() -> None:
    gru = Gru((19, 13, 2))
    tokens = np.random.default_rng(3).integers(0, 19, (50, 7)).astype(np.uint16)
    state = np.random.default_rng(4).standard_normal((50, 2, 13)).astype(np.float32)
    losses, end = es_core.rnn_text_losses(*gru.arguments(), tokens=tokens, state=state, cell="gru", threads=2)
    total = np.zeros(50)
    for t in range(6):
        log_probabilities, state = es_core.rnn_next_log_probabilities(
            *gru.arguments(), tokens=np.ascontiguousarray(tokens[:, t : t + 1]), state=state, cell="gru"
        )
        total -= log_probabilities[np.arange(50), tokens[:, t + 1]]
    np.testing.assert_allclose(total, losses, rtol=0, atol=1e-4)
    np.testing.assert_allclose(state, end, rtol=0, atol=TOLERANCE)


class TorchGru:
    """torch.nn.GRU and torch.nn.Linear with weights from our layout."""

    def __init__(self, shape: Shape) -> None:
        self.torch: Any = pytest.importorskip("torch", reason="compares with PyTorch, the torch extra")
        self.shape = shape
        vocab, hidden, layers = shape
        self.gru = self.torch.nn.GRU(vocab, hidden, layers, batch_first=True)
        self.head = self.torch.nn.Linear(hidden, vocab)

    def load(self, tensors: dict[str, Float32Array]) -> None:
        _, hidden, layers = self.shape
        named = dict(self.gru.named_parameters())
        with self.torch.no_grad():
            for layer in range(layers):
                inputs = tensors["embedding.weight"].T if layer == 0 else tensors[f"rnn.weight_ih_l{layer}"]
                second = np.concatenate([np.zeros(2 * hidden, np.float32), tensors[f"rnn.bias_hn_l{layer}"]])
                for name, array in (
                    ("weight_ih", inputs),
                    ("weight_hh", tensors[f"rnn.weight_hh_l{layer}"]),
                    ("bias_ih", tensors[f"rnn.bias_ih_l{layer}"]),
                    ("bias_hh", second),
                ):
                    named[f"{name}_l{layer}"].copy_(self.torch.from_numpy(np.ascontiguousarray(array)))
            self.head.weight.copy_(self.torch.from_numpy(tensors["head.weight"]))
            self.head.bias.copy_(self.torch.from_numpy(tensors["head.bias"]))

    def read(self, tokens: NDArray[np.uint16], state: Float32Array) -> tuple[Any, Any]:
        """Nats [rows, n] of each token of [rows, n + 1] after the first; states [layers, rows, hidden] in and out."""
        functional = self.torch.nn.functional
        wide = self.torch.from_numpy(tokens.astype(np.int64))
        one_hot = functional.one_hot(wide[:, :-1], self.shape[0]).float()
        outputs, last = self.gru(one_hot, self.torch.from_numpy(np.ascontiguousarray(state)))
        losses = functional.cross_entropy(self.head(outputs).transpose(1, 2), wide[:, 1:], reduction="none")
        return losses, last


SHAPES = [(11, 8, 1), (30, 21, 2), (65, 64, 1), (7, 33, 3)]


@pytest.fixture(params=SHAPES, ids=str)
def pair(request: pytest.FixtureRequest) -> tuple[Gru, TorchGru]:
    gru = Gru(request.param)
    torch_gru = TorchGru(request.param)
    torch_gru.load(gru.layout.split(gru.weights))
    return gru, torch_gru


@pytest.mark.usefixtures("isa")
def test_texts_have_the_losses_and_states_of_pytorch(pair: tuple[Gru, TorchGru]) -> None:
    gru, torch_gru = pair
    vocab, hidden, layers = gru.shape
    tokens = np.random.default_rng(3).integers(0, vocab, (53, 21)).astype(np.uint16)
    state = np.random.default_rng(4).standard_normal((53, layers, hidden)).astype(np.float32)
    losses, end = es_core.rnn_text_losses(*gru.arguments(), tokens=tokens, state=state, cell="gru")
    expected, last = torch_gru.read(tokens, state.transpose(1, 0, 2))
    np.testing.assert_allclose(losses / 20, expected.mean(dim=1).detach().numpy(), rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(end, last.detach().numpy().transpose(1, 0, 2), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("antithetic", [False, True])
def test_members_have_the_losses_of_pytorch_with_their_weights(
    pair: tuple[Gru, TorchGru], rank: int, antithetic: bool
) -> None:
    gru, torch_gru = pair
    text = Text(gru.shape[0], group_size=4, n_groups=3, batch_size=2, context=5, scored=9)
    losses = member_losses(gru, text, rank=rank, antithetic=antithetic)
    trials = Trials(STEP, Perturbation(SIGMA, rank, antithetic=antithetic), 4, 2**33 * 4, 12)
    noise = member_noise(gru.layout, trials, seed=SEED)
    plain = gru.layout.split(gru.weights)
    for member in range(12):
        group = member // 4
        tensors = {
            name: perturbed(tensor, drawn, member) for (name, tensor), drawn in zip(plain.items(), noise, strict=True)
        }
        is_cold = bool(text.is_cold[group])
        initial = tensors["initial_state"] if is_cold else plain["initial_state"]
        state = np.repeat(initial.reshape(gru.shape[2], 1, -1), 2, axis=1)
        if not is_cold:
            torch_gru.load(plain)
            state = torch_gru.read(text.tokens[group, :, :6], state)[1].detach().numpy()
        torch_gru.load(tensors)
        expected = torch_gru.read(text.tokens[group, :, 5:], state)[0].mean().item()
        assert abs(losses[member] - expected) < TOLERANCE


def test_the_closed_form_of_the_head_is_the_gradient_that_pytorch_finds(pair: tuple[Gru, TorchGru]) -> None:
    gru, torch_gru = pair
    text = Text(gru.shape[0], group_size=1, n_groups=3, batch_size=2, context=0, scored=9)
    arguments = gru.arguments()
    estimate = es_core.rnn_head_gradient(
        *arguments, tokens=text.tokens, context=0, is_cold=text.is_cold, cell="gru", threads=2
    )
    state = np.repeat(gru.initial_state[:, np.newaxis], 6, axis=1)
    losses, _ = torch_gru.read(text.tokens.reshape(6, -1), state)
    (losses.mean(dim=1).sum() / 2).backward()  # the mean over a group's sequences, summed over groups
    for name, gradient in (("head.weight", torch_gru.head.weight.grad), ("head.bias", torch_gru.head.bias.grad)):
        place = [tensor.name for tensor in gru.layout.tensors].index(name)
        found = gru.layout.split(estimate.astype(np.float32))[name] / es_core.ESTIMATE_UNIT / arguments[2][place]
        np.testing.assert_allclose(found, gradient.numpy(), rtol=0, atol=1e-4)
    assert not estimate[: gru.layout.offsets[-3]].any()


def test_what_only_tanh_units_have_is_refused() -> None:
    gru = Gru((9, 8, 1))
    text = Text(9, group_size=2, n_groups=2, batch_size=1, context=2, scored=4)
    with pytest.raises(ValueError, match="int8: expected the cell tanh, got gru; use float32"):
        member_losses(gru, text, rank=1, int8=True)
    with pytest.raises(
        ValueError, match="cell: expected tanh for noise on activations, got gru; put the noise on weights"
    ):
        es_core.rnn_activation_gradient(
            *gru.arguments(),
            seed=1,
            step=1,
            first_member=0,
            group_size=2,
            tokens=text.tokens,
            context=2,
            is_cold=text.is_cold,
            sigma=0.1,
            logit_sigma=0.0,
            discount=0.7,
            cell="gru",
        )


def test_another_cell_or_the_tensors_of_another_are_refused() -> None:
    gru = Gru((9, 8, 1))
    tokens, state = np.zeros((2, 3), dtype=np.uint16), np.zeros((2, 1, 8), dtype=np.float32)
    with pytest.raises(ValueError, match="cell: expected tanh or gru or lstm, got relu"):
        es_core.rnn_text_losses(*gru.arguments(), tokens=tokens, state=state, cell="relu")
    with pytest.raises(ValueError, match="expected 6 tensors for this shape, got 7"):
        es_core.rnn_text_losses(*gru.arguments(), tokens=tokens, state=state)
    _, table, scales, weights = gru.arguments()
    with pytest.raises(ValueError, match=r"expected tensor 0 of \[8, 27\]"):
        es_core.rnn_text_losses((8, 9, 1), table, scales, weights, tokens=tokens, state=state, cell="gru")
