from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedlearn
from fedlearn.es.noise import member_noise, perturbed
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.task import Batch, flat_weights

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils.checkpoint import checkpoint  # noqa: E402

from fedlearn.tasks.torch.supervised import Rows, Supervised, supervised  # noqa: E402
from fedlearn.tasks.torch_graph.sharing import received  # noqa: E402

N_GROUPS, GROUP_SIZE, BATCH_SIZE = 2, 4, 5


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def cross_entropy(model: nn.Module, rows: Rows) -> Tensor:
    return F.cross_entropy(model(rows["x"]), rows["y"])


def accuracy(model: nn.Module, rows: Rows) -> Tensor:
    logits: Tensor = model(rows["x"])
    return (logits.argmax(-1) == rows["y"]).float().mean()


def examples(n: int = 40) -> dict[str, NDArray[Any]]:
    generator = np.random.default_rng(1)
    return {"x": generator.standard_normal((n, 6)), "y": generator.integers(0, 3, n).astype(np.int32)}


def batch_of(task: Supervised) -> Batch:
    rows = np.arange(N_GROUPS * BATCH_SIZE).reshape(N_GROUPS, BATCH_SIZE)
    return Batch({name: column[rows] for name, column in task.data.items()}, seeds=(1, 2))


@pytest.mark.parametrize("rank", [1, 3])
def test_losses_are_those_of_perturbed_weights(rank: int) -> None:
    task = supervised(network, cross_entropy, examples(), batch_size=BATCH_SIZE)
    trials = Trials(3, Perturbation(sigma=0.05, rank=rank), GROUP_SIZE, 0, N_GROUPS * GROUP_SIZE)
    noise = member_noise(task.layout, trials, seed=7)
    weights = flat_weights(task.tensors)
    batch = batch_of(task)
    losses = task.losses(task.members(weights, noise, n_groups=N_GROUPS), batch)
    tensors = list(task.tensors.values())
    model = network()
    for member, loss in enumerate(losses):
        for parameter, tensor, one in zip(model.parameters(), tensors, noise, strict=True):
            parameter.data = torch.from_numpy(perturbed(tensor, one, member))
        group = member // GROUP_SIZE
        x, y = (torch.from_numpy(batch.rows[name][group]) for name in "xy")
        assert loss == pytest.approx(F.cross_entropy(model(x), y.long()).item(), abs=1e-6)
    assert np.std(losses) > 1e-3
    assert task.report().startswith("cross_entropy: ")


def test_metrics_are_of_unperturbed_weights_on_the_last_tenth() -> None:
    data = examples()
    task = supervised(network, cross_entropy, data, metrics={"accuracy": accuracy})
    assert len(task.data["x"]) == 36
    assert len(task.held_out["x"]) == 4
    weights = flat_weights(task.tensors)
    figures = task.evaluate(weights, threads=1)
    x, y = torch.tensor(data["x"][36:], dtype=torch.float32), torch.tensor(data["y"][36:])
    assert figures == {"accuracy": pytest.approx((task.model(x).argmax(-1) == y).float().mean().item())}
    assert task.evaluate(np.zeros_like(weights), threads=1) != figures or figures["accuracy"] == (y == 0).float().mean()


def test_all_rows_are_trained_on_where_nothing_is_measured() -> None:
    task = supervised(network, cross_entropy, examples())
    assert len(task.data["x"]) == 40
    assert task.evaluate(flat_weights(task.tensors), threads=1) == {}


def test_columns_of_different_lengths_are_named() -> None:
    data = {**examples(), "y": np.zeros(39)}
    with pytest.raises(
        ValueError, match=r"data: expected columns of one length above 0, got lengths .*'x': 40, 'y': 39"
    ):
        supervised(network, cross_entropy, data)


def test_held_out_columns_must_be_those_of_the_data() -> None:
    with pytest.raises(ValueError, match=r"held_out: expected the columns \['x', 'y'\] of data, got \['x'\]"):
        supervised(network, cross_entropy, examples(), held_out={"x": np.zeros((3, 6))})


def test_a_loss_must_be_one_number() -> None:
    task = supervised(network, lambda model, rows: model(rows["x"]).mean(1), examples(), batch_size=BATCH_SIZE)
    noise = member_noise(task.layout, Trials(0, Perturbation(0.1, 1), GROUP_SIZE, 0, 8), seed=1)
    with pytest.raises(ValueError, match=r"expected one number, got a tensor of shape \(5,\); take its mean"):
        task.losses(task.members(flat_weights(task.tensors), noise, n_groups=2), batch_of(task))


def test_a_loss_that_draws_is_the_same_for_all_members_of_a_group() -> None:
    def noisy(model: nn.Module, rows: Rows) -> Tensor:
        x = rows["x"] + torch.randn(rows["x"].shape)
        answer: Tensor = model(x)
        mean: Tensor = answer.mean() * 1e-9 + x.mean()  # too little to be seen
        return mean

    task = supervised(network, noisy, examples(), batch_size=BATCH_SIZE)
    noise = member_noise(task.layout, Trials(0, Perturbation(0.1, 1), GROUP_SIZE, 0, 8), seed=1)
    losses = task.losses(task.members(flat_weights(task.tensors), noise, n_groups=2), batch_of(task))
    assert len(set(losses[:4].tolist())) == len(set(losses[4:].tolist())) == 1
    assert losses[0] != losses[4]


def test_a_metric_may_differentiate() -> None:
    def steepness(model: nn.Module, rows: Rows) -> Tensor:
        x = rows["x"].requires_grad_(True)
        (slope,) = torch.autograd.grad(model(x).sum(), x)
        found: Tensor = slope.square().mean()
        return found

    task = supervised(network, cross_entropy, examples(), metrics={"steepness": steepness})
    weights = flat_weights(task.tensors)
    assert task.evaluate(weights, threads=1)["steepness"] > 0.0
    assert task.evaluate(0 * weights, threads=1)["steepness"] == 0.0


def test_a_metric_that_fails_is_named() -> None:
    def broken(model: nn.Module, rows: Rows) -> Tensor:
        return model(rows["z"]).mean()  # type: ignore[no-any-return]

    task = supervised(network, cross_entropy, examples(), metrics={"accuracy": accuracy, "worse": broken})
    with pytest.raises(ValueError, match="metrics: expected a number of 'worse', got KeyError: 'z'"):
        task.evaluate(flat_weights(task.tensors), threads=1)


@pytest.mark.parametrize(("batch_size", "expected"), [(None, (32, 8)), (7, (7, 0)), (32, (32, 0))])
def test_groups_have_fewer_rows_by_losses_unless_their_number_is_said(
    batch_size: int | None, expected: tuple[int, int]
) -> None:
    task = supervised(network, cross_entropy, examples(), batch_size=batch_size)
    assert (task.batch_size, task.batch_size_by_losses) == expected


@pytest.mark.parametrize("batch_size", [0, -1, 32.0, "32"])
def test_a_group_has_a_whole_number_of_rows(batch_size: Any) -> None:  # noqa: ANN401 (what people pass)
    with pytest.raises(ValueError, match=f"batch_size: expected 1 or more, got {batch_size!r}; give a whole number"):
        supervised(network, cross_entropy, examples(), batch_size=batch_size)


@pytest.mark.parametrize(("given", "expected"), [({}, BATCH_SIZE), ({"batch_size": 3}, 3)])
def test_a_graph_is_of_as_many_rows_as_are_asked_for(given: dict[str, int], expected: int) -> None:
    task = supervised(network, cross_entropy, examples(), batch_size=BATCH_SIZE)
    assert received(task.as_graph(**given)).batch_size == expected


def test_settings_scales_and_columns_of_rows_are_kept() -> None:
    more: dict[str, Any] = {"scales": {"0.": 3.0}, "settings": {"sigma": 0.5}, "reads": {"0.weight": "y"}}
    task = supervised(network, cross_entropy, examples(), batch_size=7, **more)
    assert (task.work_per_member, task.unit, task.kind) == (7, "examples", "supervised")
    assert task.settings == {"sigma": 0.5}
    assert [spec.scale for spec in task.layout.tensors] == [3.0, 3.0, 1.0, 1.0]
    assert [spec.mask_column for spec in task.layout.tensors] == [0, -1, -1, -1]


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        ({"loss": F.cross_entropy}, "loss: expected a function of .*, got cross_entropy, a function of outputs"),
        ({"loss": nn.CrossEntropyLoss()}, "loss: expected a function of .*, got CrossEntropyLoss, a function of outp"),
        (
            {"metrics": {"accuracy": lambda model: model}},
            r"accuracy: expected a function of \(model, rows\), got <lamb",
        ),
        ({"metrics": accuracy}, r"metrics: expected functions by name, got function; .* \{'accuracy': accuracy\}"),
        ({"metrics": [accuracy]}, r"metrics: expected functions by name, got list; .* \{'accuracy': accuracy\}"),
        (
            {"loss": {"x": [1.0]}, "data": F.mse_loss},
            r"expected supervised\(model, loss, data\), got them the other way",
        ),
        ({"model": nn.Linear}, r"model: expected a function of no arguments, got Linear\(in_features, "),
    ],
    ids=[
        "function of outputs",
        "module of outputs",
        "metric",
        "metric without a name",
        "metrics in a list",
        "other order",
        "class",
    ],
)
def test_functions_that_take_other_arguments_are_refused_before_anything_runs(
    arguments: dict[str, Any], received: str
) -> None:
    with pytest.raises(ValueError, match=received):
        supervised(**{"model": network, "loss": cross_entropy, "data": examples(), **arguments})


@pytest.mark.parametrize(
    ("more", "received"),
    [
        (lambda loss: {"loss": loss, "logits": 1}, "got dict of 'loss', 'logits'; return its 'loss' alone"),
        (lambda loss: (loss, loss), "got tuple of 2; return the loss alone"),
    ],
    ids=["dictionary", "tuple"],
)
def test_a_loss_that_gives_more_than_itself_is_refused(more: Callable[[Tensor], Any], received: str) -> None:
    task = supervised(network, lambda model, rows: more(cross_entropy(model, rows)), examples(), batch_size=BATCH_SIZE)
    weights, batch = flat_weights(task.tensors), batch_of(task)
    noise = member_noise(task.layout, Trials(0, Perturbation(0.1, 1), GROUP_SIZE, 0, 8), seed=1)
    with pytest.raises(ValueError, match=f"the loss: expected one number, {received}"):
        task.losses(task.members(weights, noise, n_groups=N_GROUPS), batch)
    with pytest.raises(ValueError, match=f"the loss: expected one number, {received}"):
        task.loss_gradients(weights, batch)


def test_targets_that_nobody_has_scaled_are_learned(tmp_path: Path) -> None:
    def squares(model: nn.Module, rows: Rows) -> Tensor:
        return F.mse_loss(model(rows["x"])[:, 0], rows["y"])

    x = np.random.default_rng(0).normal(size=(512, 6)).astype(np.float32)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    task = supervised(model, squares, {"x": x, "y": 3000.0 + 1000.0 * x[:, 0]}, batch_size=32)
    given: dict[str, Any] = {"learning_rate": 0.2, "population_limit": 4, "threads": 1, "progress": False}
    trained = fedlearn.train(task, steps=100, runs=tmp_path, **given)
    losses = [loss for loss in trained.losses if loss is not None]
    assert losses[0] > 5e6
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_what_is_computed_again_on_the_way_back_drops_the_same(use_reentrant: bool) -> None:
    def dropping() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 3))

    def plain(model: nn.Module, rows: Rows) -> Tensor:
        return cross_entropy(model, rows)

    def checkpointed(model: nn.Module, rows: Rows) -> Tensor:
        assert isinstance(model, nn.Sequential)
        found = checkpoint(model[1:], model[0](rows["x"]), use_reentrant=use_reentrant)
        return F.cross_entropy(found, rows["y"])

    expected, task = (supervised(dropping, loss, examples(), batch_size=BATCH_SIZE) for loss in (plain, checkpointed))
    weights, batch = flat_weights(expected.tensors), batch_of(expected)
    for _ in range(2):  # what the first gradient shows decides how further ones are computed
        one, other = expected.loss_gradients(weights, batch), task.loss_gradients(weights, batch)
        np.testing.assert_array_equal(one.losses, other.losses)
        np.testing.assert_array_equal(one.total, other.total)
    assert (expected._may_draw_again, task._may_draw_again) == (False, True)


def test_by_losses_an_expert_that_few_rows_meet_is_trained() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList([nn.Linear(6, 3) for _ in range(2)])

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.experts[int(x[:, 0].max() > 10.0)](x)
            return found

    def losses_of(data: dict[str, NDArray[Any]]) -> NDArray[Any]:
        task = supervised(Experts, cross_entropy, data, batch_size=BATCH_SIZE)
        noise = member_noise(task.layout, Trials(0, Perturbation(0.1, 1), GROUP_SIZE, 0, 8), seed=1)
        return task.losses(task.members(flat_weights(task.tensors), noise, n_groups=N_GROUPS), batch_of(task))

    data = examples()
    with pytest.raises(ValueError, match=r"never read experts\.1\.weight, experts\.1\.bias"):
        losses_of(data)
    data["x"][-1, 0] = 11.0
    assert np.std(losses_of(data)) > 0
