"""Graphs of layers and losses that few models have: each against the module itself, whole and as members of a run."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from fedlearn.es.noise import member_noise  # noqa: E402
from fedlearn.es.perturbation import Perturbation  # noqa: E402
from fedlearn.es.trials import Trials  # noqa: E402
from fedlearn.graphs.graph import GraphError  # noqa: E402
from fedlearn.tasks.task import Batch, Task, flat_weights  # noqa: E402
from fedlearn.tasks.torch import gradients  # noqa: E402
from fedlearn.tasks.torch.gradients import Batching  # noqa: E402
from fedlearn.tasks.torch.seeds import seeded as torch_seeded  # noqa: E402
from fedlearn.tasks.torch.supervised import Supervised, supervised  # noqa: E402
from fedlearn.tasks.torch_graph.graph_task import GraphTask  # noqa: E402
from fedlearn.tasks.torch_graph.sharing import received, unpacked  # noqa: E402

Forward = Callable[[Any, Tensor], Tensor]

X, TOKENS = torch.linspace(-1, 1, 12).view(3, 4), torch.tensor([[0, 2, 1], [2, 2, 0], [1, 0, 0]])
IMAGES, SEQUENCES = torch.linspace(-1, 1, 216).view(2, 3, 6, 6), torch.linspace(-1, 1, 40).view(2, 5, 4)
CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)


class Model(nn.Module):
    """A matrix, the layers that a case has, and what it does with them."""

    def __init__(self, forward: Forward, **layers: nn.Module) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4) / 2)
        for name, layer in layers.items():
            self.add_module(name, layer)
        self._forward = forward

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def bag(mode: str) -> nn.Module:
    return Model(lambda m, x: m.bag(x) @ m.w, bag=nn.EmbeddingBag(3, 4, mode=mode))


def resized(**how: Any) -> nn.Module:  # noqa: ANN401
    return Model(lambda m, x: F.interpolate(x * m.w.sum(), **how))


def ctc(model: Any, x: Tensor, **how: Any) -> Tensor:  # noqa: ANN401
    scores = (x @ model.w).log_softmax(-1).transpose(0, 1)
    return F.ctc_loss(scores, torch.tensor([[1, 1], [3, 2]]), torch.tensor([5, 4]), torch.tensor([2, 1]), **how)


def diffusion(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    levels = torch.linspace(0.1, 1, 9)[torch.randint(0, 9, (len(x),))]
    noise = torch.randn_like(x)
    error: Tensor = (x + levels[:, None] * noise) @ model.w - noise
    return error


def dropping(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    x = F.dropout(x @ model.w, 0.3) + torch.rand_like(x)
    x = F.scaled_dot_product_attention(x, x, x, is_causal=True, dropout_p=0.4)
    x = F.scaled_dot_product_attention(x, x, x, torch.ones(5, 5).tril(-1).bool(), dropout_p=0.4)
    return F.alpha_dropout(F.dropout1d(x, 0.5) + torch.randn(4), 0.2)


def transformer() -> nn.Transformer:
    return nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True)


def weight_normed(make: Callable[[nn.Module], nn.Module]) -> nn.Module:
    return Model(lambda m, x: m.layer(x @ m.w), layer=make(nn.Linear(4, 3)))


CASES: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "_weight_norm": (lambda: weight_normed(nn.utils.parametrizations.weight_norm), X),
    "embedding_bag, mean": (lambda: bag("mean"), TOKENS),
    "embedding_bag, sum": (lambda: bag("sum"), TOKENS),
    "embedding_bag, max": (lambda: bag("max"), TOKENS),
    "lstm_cell": (lambda: Model(lambda m, x: m.cell(x @ m.w)[1], cell=nn.LSTMCell(4, 3)), X),
    "gru_cell": (lambda: Model(lambda m, x: m.cell(x @ m.w), cell=nn.GRUCell(4, 3)), X),
    "rnn_tanh_cell": (lambda: Model(lambda m, x: m.cell(x @ m.w), cell=nn.RNNCell(4, 3)), X),
    "rnn_relu_cell": (lambda: Model(lambda m, x: m.cell(x @ m.w), cell=nn.RNNCell(4, 3, nonlinearity="relu")), X),
    "upsample_bicubic2d": (lambda: resized(size=(9, 7), mode="bicubic"), IMAGES),
    "_upsample_bicubic2d_aa": (lambda: resized(size=(4, 3), mode="bicubic", antialias=True), IMAGES),
    "_upsample_bilinear2d_aa": (lambda: resized(size=(4, 3), mode="bilinear", antialias=True), IMAGES),
    "upsample_linear1d": (lambda: resized(scale_factor=2.0, mode="linear"), SEQUENCES),
    "upsample_trilinear3d": (lambda: resized(scale_factor=2.0, mode="trilinear"), IMAGES[:, :, None]),
    "upsample_nearest3d": (lambda: resized(scale_factor=2.0), IMAGES[:, :, None]),
    "_upsample_nearest_exact1d": (lambda: resized(scale_factor=1.5, mode="nearest-exact"), SEQUENCES),
    "_upsample_nearest_exact2d": (lambda: resized(scale_factor=1.5, mode="nearest-exact"), IMAGES),
    "_upsample_nearest_exact3d": (lambda: resized(scale_factor=1.5, mode="nearest-exact"), IMAGES[:, :, None]),
    "vdot": (lambda: Model(lambda m, x: torch.vdot((x @ m.w)[0], x[1])), X),
    "matrix_exp": (lambda: Model(lambda m, x: x @ torch.matrix_exp(m.w)), X),
    "fft_rfft": (lambda: Model(lambda m, x: torch.fft.rfft(x @ m.w, dim=0, norm="ortho").abs()), X),
    "fft_fft2": (lambda: Model(lambda m, x: torch.fft.fft2(x @ m.w).real), SEQUENCES),
    "fft_irfft": (
        lambda: Model(lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * torch.view_as_complex(m.w[:3, :2]), n=4)), X
    ),
    "the mask of nn.Transformer": (
        lambda: Model(lambda m, x: m.t(x @ m.w, x, tgt_mask=CAUSAL), t=transformer()), SEQUENCES
    ),
    "the mask of an encoder": (
        lambda: Model(lambda m, x: m.t(x @ m.w, mask=CAUSAL), t=transformer().encoder), SEQUENCES
    ),
    "ctc_loss": (lambda: Model(ctc), SEQUENCES),
    "ctc_loss, not reduced": (lambda: Model(lambda m, x: ctc(m, x, reduction="none", blank=2)), SEQUENCES),
    "ctc_loss, summed": (lambda: Model(lambda m, x: ctc(m, x, reduction="sum", zero_infinity=True)), SEQUENCES),
    "a variational autoencoder": (lambda: Model(lambda m, x: x @ m.w + torch.randn_like(x) * (x @ m.w).exp()), X),
    "rand": (lambda: Model(lambda m, x: (x + torch.rand(3, 1) + torch.rand_like(x)) @ m.w), X),
    "diffusion": (lambda: Model(diffusion), X),
    "dropout of many kinds": (lambda: Model(dropping), SEQUENCES),
}  # fmt: skip
TOGETHER = gradients._together
DRAWN = ("a variational autoencoder", "rand", "diffusion", "dropout of many kinds")


def mean_square(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
    answer: Tensor = model(rows["x"])
    return answer.square().mean()


def task_of(name: str) -> Supervised:
    make, x = CASES[name]
    torch.manual_seed(0)
    return supervised(make, mean_square, {"x": x.numpy()}, batch_size=len(x))


def losses_of(task: Task, weights: Any, x: Tensor, seeds: tuple[int, ...] = (1, 2)) -> Any:  # noqa: ANN401
    trials = Trials(3, Perturbation(sigma=0.05, rank=1), 4, 0, 8)
    members = task.members(weights, member_noise(task.layout, trials, seed=7), n_groups=2)
    return np.asarray(task.losses(members, Batch({"x": np.stack([x.numpy()] * 2)}, seeds=seeds)))


@pytest.mark.filterwarnings("ignore:.*performance drop")
@pytest.mark.parametrize("name", CASES)
def test_members_of_a_graph_lose_what_they_lose_with_the_module(name: str) -> None:
    task = task_of(name)
    volunteer = received(task.as_graph())
    weights = flat_weights(task.tensors)
    expected = losses_of(task, weights, CASES[name][1])
    np.testing.assert_allclose(losses_of(volunteer, weights, CASES[name][1]), expected, rtol=1e-5, atol=2e-6)
    assert len(set(expected)) > 1
    operators = {call.operator.split(".")[0] for call in unpacked(task.as_graph()).graph.calls}
    assert name in operators or name.split(",")[0] in ("embedding_bag", "ctc_loss") or " " in name or name in DRAWN


@pytest.mark.parametrize("name", DRAWN)
def test_what_a_graph_draws_is_its_groups_and_can_be_drawn_again(name: str) -> None:
    task = task_of(name)
    graph, weights, x = received(task.as_graph()), flat_weights(task.tensors), CASES[name][1]
    found = losses_of(graph, weights, x)
    for other in (graph, received(task.as_graph())):
        np.testing.assert_allclose(losses_of(other, weights, x), found, rtol=1e-5)
    others = np.isclose(losses_of(graph, weights, x, seeds=(1, 3)), found, rtol=1e-5)
    assert others.tolist() == [True] * 4 + [False] * 4


@pytest.mark.parametrize("name", ["rand", "lstm_cell"])
def test_gradients_of_a_graph_leave_generators_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(name)
    graph = received(task.as_graph())
    monkeypatch.setattr(gradients, "seeded", seeded := Mock(side_effect=torch_seeded))
    batch = Batch({column: rows[None] for column, rows in task.data.items()}, (5,))
    before = torch.get_rng_state()
    graph.loss_gradients(flat_weights(graph.tensors), batch)
    assert [call.args[0] for call in seeded.call_args_list] == [None]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", DRAWN)
def test_groups_draw_the_same_whether_they_are_computed_together_or_not(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = flat_weights(task_of(name).tensors)
    found, tried = [], []

    def together(*given: Any) -> Any:  # noqa: ANN401
        tried.append(TOGETHER(*given))
        return tried[-1]

    monkeypatch.setattr(gradients, "_together", together)
    for is_together in (False, True):
        graph = received(task_of(name).as_graph())
        assert isinstance(graph, GraphTask)
        rows = {column: np.stack([x] * 3) for column, x in task_of(name).data.items()}
        graph._batching = batching = Batching()
        batching.took(1, 1e-4) if is_together else batching.refuse()
        found.append(graph.loss_gradients(weights, Batch(rows, (7, 8, 9))))
    assert [each is not None for each in tried] == [True]
    one_by_one, at_once = found
    assert len(set(one_by_one.losses.tolist())) == 3
    np.testing.assert_allclose(at_once.losses, one_by_one.losses, rtol=1e-5)
    np.testing.assert_allclose(at_once.total, one_by_one.total, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", DRAWN)
def test_what_a_group_draws_follows_from_its_seed_alone(name: str) -> None:
    weights = flat_weights(task_of(name).tensors)
    graph = received(task_of(name).as_graph())

    def losses(*seeds: int) -> list[float]:
        rows = {column: np.stack([x] * len(seeds)) for column, x in task_of(name).data.items()}
        found: list[float] = graph.loss_gradients(weights, Batch(rows, seeds)).losses.tolist()
        return found

    first, second, third = losses(7, 8, 9)
    assert losses(9, 7) == pytest.approx([third, first], rel=1e-5)
    assert losses(8) == pytest.approx([second], rel=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Model(lambda m, x: m.bag(x.flatten(), torch.tensor([0, 2, 3])) @ m.w, bag=nn.EmbeddingBag(3, 4)),
        lambda: Model(lambda m, x: m.bag(x) @ m.w, bag=nn.EmbeddingBag(3, 4, padding_idx=0)),
    ],
)
def test_bags_of_given_lengths_are_refused(make: Callable[[], nn.Module]) -> None:
    task = supervised(make, mean_square, {"x": TOKENS.numpy()}, batch_size=3)
    with pytest.raises(GraphError, match="embedding_bag"):
        task.as_graph()


def test_pytorchs_functions_are_put_back() -> None:
    before = F.ctc_loss, F.embedding_bag
    task_of("ctc_loss").as_graph()
    assert (F.ctc_loss, F.embedding_bag) == before
