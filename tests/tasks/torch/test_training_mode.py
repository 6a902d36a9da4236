"""Supervised learning of modules in training mode."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import safetensors.torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812 (as everybody calls it)

from fedlearn.es.layout import Float32Array  # noqa: E402
from fedlearn.es.noise import member_noise  # noqa: E402
from fedlearn.es.perturbation import Perturbation  # noqa: E402
from fedlearn.es.trials import Trials  # noqa: E402
from fedlearn.tasks.task import Batch, Task, flat_weights  # noqa: E402
from fedlearn.tasks.torch.dropout import PortableDraws  # noqa: E402
from fedlearn.tasks.torch.seeds import seeded  # noqa: E402
from fedlearn.tasks.torch.supervised import Rows, Supervised, supervised  # noqa: E402
from fedlearn.tasks.torch.training_mode import averaging, judging, learning, norms_in_training  # noqa: E402
from fedlearn.tasks.torch_graph.graph_task import GraphTask  # noqa: E402
from fedlearn.tasks.torch_graph.sharing import received  # noqa: E402

BATCH_SIZE = 4
MASK = torch.ones(3, 3, dtype=torch.bool).tril(-1)
"""A mask by which the first query may look nowhere."""


class Model(nn.Module):
    """A linear layer, parts, and the function that runs them."""

    def __init__(self, function: Callable[["Model", Tensor], Tensor], part: nn.Module | None = None) -> None:
        super().__init__()
        self.w, self.function, self.part = nn.Linear(6, 6), function, part

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.w(x)
        return self.function(self, hidden)


def through(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A model that runs a part, all of whose results count."""

    def run(model: Model, x: Tensor) -> Tensor:
        assert model.part is not None
        found = model.part(*[x] * (3 if isinstance(model.part, nn.MultiheadAttention) else 1))
        joined: Tensor = torch.cat([result.flatten() for result in leaves(found)])
        return joined

    return lambda: Model(run, make())


def leaves(found: object) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    return [leaf for each in found for leaf in leaves(each)] if isinstance(found, tuple) else []


def attention(**given: Any) -> Callable[[], nn.Module]:  # noqa: ANN401 (arguments of attention)
    def run(_: Model, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], dropout_p=0.4, **given)

    return lambda: Model(run)


def grouped(_: Model, x: Tensor) -> Tensor:
    q, k = (x[:, None].expand(-1, n_heads, -1, -1) for n_heads in (4, 2))
    return F.scaled_dot_product_attention(q, k, k, dropout_p=0.4, enable_gqa=True)


CASES: dict[str, Callable[[], nn.Module]] = {
    "dropout": through(lambda: nn.Dropout(0.3)),
    "dropout in place": through(lambda: nn.Dropout(0.3, inplace=True)),
    "dropout of all": lambda: Model(lambda _, x: x + F.dropout(x, 1.0)),
    "dropout of features": through(lambda: nn.Dropout1d(0.3)),
    "alpha dropout": through(lambda: nn.AlphaDropout(0.3)),
    "alpha dropout of features": through(lambda: nn.FeatureAlphaDropout(0.3)),
    "a function": lambda: Model(lambda m, x: F.dropout(x, training=m.training)),
    "paths": lambda: Model(lambda _, x: x * x.new_empty(len(x), 1, 1).bernoulli_(0.6).div_(0.6)),
    "bernoulli": lambda: Model(lambda _, x: x * torch.bernoulli(torch.full(x.shape, 0.6))),
    "lstm": through(lambda: nn.LSTM(6, 5, 3, dropout=0.3)),
    "lstm of both directions": through(lambda: nn.LSTM(6, 5, 2, dropout=0.3, batch_first=True, bidirectional=True)),
    "gru": through(lambda: nn.GRU(6, 5, 2, dropout=0.3, bias=False)),
    "rnn": through(lambda: nn.RNN(6, 5, 2, dropout=0.3, nonlinearity="relu")),
    "one layer": through(lambda: nn.RNN(6, 5, 1, dropout=0.0)),
    "an attention layer": through(lambda: nn.MultiheadAttention(6, 2, dropout=0.3)),
    "an encoder": through(lambda: nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)),
    "attention": attention(),
    "causal attention": attention(is_causal=True),
    "masked attention": attention(attn_mask=MASK),
    "biased attention": attention(attn_mask=torch.zeros(3, 3).masked_fill(~MASK, -torch.inf), scale=0.3),
    "attention with groups": lambda: Model(grouped),
    "a batch norm": through(lambda: nn.BatchNorm1d(3)),
    "a bare batch norm": through(lambda: nn.BatchNorm1d(3, affine=False, momentum=None)),
    "both": through(lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.3))),
}
X = torch.randn(2 * BATCH_SIZE, 3, 6, generator=torch.Generator().manual_seed(1)).numpy()


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def mean_square(model: nn.Module, rows: Rows) -> Tensor:
    y = model(rows["x"]).flatten()
    found: Tensor = ((y.tanh() - 1.0).square() * torch.linspace(0.5, 1.5, len(y))).mean()
    return found


def batch() -> Batch:
    return Batch({"x": X.reshape(2, BATCH_SIZE, *X.shape[1:])}, (5, 6))


def task_of(name: str) -> Supervised:
    return supervised(CASES[name], mean_square, {"x": X}, batch_size=BATCH_SIZE)


def losses_of(task: Task, weights: Float32Array) -> Float32Array:
    trials = Trials(3, Perturbation(sigma=0.05, rank=1), 4, 0, 8)
    members = task.members(weights, member_noise(task.layout, trials, seed=7), n_groups=2)
    return np.asarray(task.losses(members, batch()))


@pytest.mark.filterwarnings("ignore:.*performance drop")
@pytest.mark.parametrize("name", CASES)
def test_a_graph_has_the_gradients_and_the_losses_of_the_module(name: str) -> None:
    task = task_of(name)
    graph, weights = received(task.as_graph()), flat_weights(task.tensors)
    assert isinstance(graph, GraphTask)
    # Whoever has the module draws as its calls come, and so may a graph.
    found, expected = graph.gradients_of(graph._program, weights, batch()), task.loss_gradients(weights, batch())
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-5)
    np.testing.assert_allclose(found.total, expected.total, rtol=1e-3, atol=1e-5)
    assert np.abs(expected.total).max() > 0.01
    again = task.loss_gradients(weights, batch())
    np.testing.assert_array_equal(again.total, expected.total)
    np.testing.assert_allclose(losses_of(graph, weights), losses_of(task, weights), rtol=1e-4)


def test_what_is_dropped_follows_from_the_groups_seed() -> None:
    model = Model(lambda m, x: F.dropout(x, 0.5, m.training))
    task = supervised(model, mean_square, {"x": X}, batch_size=BATCH_SIZE)
    found = task.loss_gradients(flat_weights(task.tensors), batch())
    with seeded(5, torch.device("cpu")), PortableDraws():
        expected = [mean_square(model, {"x": rows}).item() for rows in torch.from_numpy(X).split(BATCH_SIZE)]
    np.testing.assert_allclose(found.losses, expected, rtol=1e-6)
    model.eval()
    assert task.loss_gradients(flat_weights(task.tensors), batch()).losses[0] != found.losses[0]


class Normed(nn.Module):
    """A network with what behaves differently in training."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.drop(self.norm(self.first(x))))
        return found

    @property
    def averages(self) -> tuple[Tensor, Tensor]:
        """The running mean and variance."""
        assert self.norm.running_mean is not None
        assert self.norm.running_var is not None
        return self.norm.running_mean, self.norm.running_var


ROWS = 3.0 + 2.0 * torch.randn(60, 3, generator=torch.Generator().manual_seed(2))


def normed_task(model: nn.Module, batch_size: int = 20) -> Supervised:
    def mean(model: nn.Module, rows: Rows) -> float:
        assert not any(module.training for module in model.modules())
        return float(model(rows["x"]).mean())

    data = {"x": ROWS.numpy()}
    return supervised(model, mean_square, data, held_out=data, metrics={"mean": mean}, batch_size=batch_size)


def test_a_model_is_judged_in_evaluation_by_averages_of_its_weights() -> None:
    model = Normed()
    task = normed_task(model, batch_size=60)
    found = task.evaluate(flat_weights(task.tensors) * 2, threads=1)["mean"]
    assert model.training
    assert model.norm.training
    assert model.norm.num_batches_tracked == 0
    assert not model.averages[0].any()
    hidden = model.first(ROWS)
    normal = (hidden - hidden.mean(0)) / (hidden.var(0) + model.norm.eps).sqrt()
    expected = model.head(normal * model.norm.weight + model.norm.bias).mean()
    assert found == pytest.approx(expected.item(), rel=1e-4)


def test_a_saved_model_has_the_averages_of_its_weights() -> None:
    model = Normed()
    task = normed_task(model)
    before, weights = task.frozen["norm.running_mean"].copy(), flat_weights(task.tensors)
    saved = safetensors.torch.load(task.state_dict(weights, {}))
    np.testing.assert_array_equal(task.frozen["norm.running_mean"], before)
    hidden, other = model.first(ROWS), Normed()
    other.load_state_dict(saved)
    mean, variance = other.averages
    torch.testing.assert_close(mean, hidden.mean(0).detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(variance, hidden.var(0).detach(), rtol=0.1, atol=0)
    assert other.norm.num_batches_tracked == 3
    assert task.evaluate(weights, threads=1)["mean"] == pytest.approx(other.eval()(ROWS).mean().item())


def test_trials_leave_averages_as_they_are() -> None:
    task = normed_task(Normed())
    before = {name: array.copy() for name, array in task.frozen.items()}
    weights = flat_weights(task.tensors)
    some = Batch({"x": ROWS.numpy()[:40].reshape(2, 20, 3)}, (1, 2))
    task.loss_gradients(weights, some)
    trials = Trials(3, Perturbation(sigma=0.05, rank=1), 4, 0, 8)
    task.losses(task.members(weights, member_noise(task.layout, trials, seed=7), n_groups=2), some)
    assert before.keys() == task.frozen.keys()
    for name, array in task.frozen.items():
        np.testing.assert_array_equal(array, before[name])


def test_averages_are_measured_by_so_many_rows_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlearn.tasks.torch.supervised.ENOUGH_ROWS", 45)
    seen: list[int] = []

    def counting(model: nn.Module, rows: Rows) -> Tensor:
        seen.append(len(rows["x"]))
        return mean_square(model, rows)

    task = supervised(Normed, counting, {"x": ROWS.numpy()}, batch_size=20)
    with task.judging():
        assert seen == [20, 20, 20]  # the first one tells whether a loss changes other buffers
    seen.clear()
    with task.judging():
        assert seen == [20, 20]
    few = supervised(Normed, counting, {"x": ROWS.numpy()}, batch_size=64)
    seen.clear()
    with few.judging():
        assert seen == [64, 64]


def test_a_model_in_evaluation_is_not_measured() -> None:
    run = Mock()
    with judging(Normed().eval(), run):
        pass
    run.assert_not_called()


def test_modes_and_settings_are_restored_after_an_error() -> None:
    own, frozen = nn.BatchNorm1d(3, momentum=0.3), nn.Sequential(nn.BatchNorm1d(3)).eval()
    model = nn.Sequential(own, frozen)
    assert norms_in_training(model) == [own]

    def fail() -> None:
        with judging(model, lambda: model(ROWS)):
            assert not model.training
            assert own.running_mean is not None
            torch.testing.assert_close(own.running_mean, ROWS.mean(0))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [module.training for module in model.modules()] == [True, True, False, False]
    assert own.momentum == 0.3
    assert own.track_running_stats
    assert own.running_mean is not None
    assert not own.running_mean.any()
    assert next(frozen.children()).track_running_stats


def test_averages_are_of_all_batches_alike() -> None:
    norm = nn.BatchNorm1d(3)
    norm(torch.full((2, 3), 100.0))
    with averaging([norm]):
        for rows in ROWS.split(20):
            norm(rows)
    torch.testing.assert_close(norm.running_mean, ROWS.mean(0))
    assert norm.num_batches_tracked == 3
    assert norm.momentum == 0.1


def test_a_model_that_learns_has_its_settings_back_afterwards() -> None:
    norm, words = nn.BatchNorm1d(3), nn.Embedding(3, 3, padding_idx=0)
    model = nn.Sequential(words, norm, nn.BatchNorm1d(3).eval())
    with learning(model):
        loss = model(torch.tensor([0, 1, 1])).tanh().square().sum()
        (gradient,) = torch.autograd.grad(loss, words.weight)
        assert gradient.any(1).tolist() == [True, True, False]
        assert not norm.track_running_stats
    assert norm.num_batches_tracked == 0
    assert words.padding_idx == 0
    assert all(layer.track_running_stats for layer in model.children() if isinstance(layer, nn.BatchNorm1d))


def test_the_row_of_padding_learns_as_the_others_do() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Embedding(3, 4, padding_idx=0), nn.Linear(4, 1))

    task = supervised(make, mean_square, {"x": np.array([[0, 0], [0, 1]] * 4)}, batch_size=4)
    some = Batch({"x": task.data["x"][None, :4]}, (1,))
    weights = flat_weights(task.tensors)
    found, expected = received(task.as_graph()).loss_gradients(weights, some), task.loss_gradients(weights, some)
    np.testing.assert_allclose(found.total, expected.total, atol=1e-6)
    assert expected.total[:4].any()
