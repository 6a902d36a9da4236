"""Modules that change buffers while they learn: nothing stays from one loss for the next."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import safetensors.torch

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn.utils.parametrizations import spectral_norm  # noqa: E402

from fedlearn.es.layout import Float32Array  # noqa: E402
from fedlearn.es.perturbation import Perturbation  # noqa: E402
from fedlearn.es.trials import Trials  # noqa: E402
from fedlearn.tasks.task import Task, flat_weights  # noqa: E402
from fedlearn.tasks.torch.supervised import Rows, Supervised, supervised  # noqa: E402
from fedlearn.tasks.torch.training_mode import POWER_ITERATIONS, buffers_taken_back, learning  # noqa: E402
from fedlearn.tasks.torch_graph.sharing import received  # noqa: E402
from fedlearn.tasks.user.task_objective import TaskObjective  # noqa: E402

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(3)) + 2.0
DATA = {"x": X.numpy()}


class Scaled(nn.Module):
    """Divides by a running mean of its own, and counts its calls."""

    mean: Tensor
    n_calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Linear(6, 6)
        self.register_buffer("mean", torch.ones(6))
        self.register_buffer("n_calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
            self.n_calls = self.n_calls + 1
        found: Tensor = self.w(x / self.mean)
        return found


def spectral() -> nn.Module:
    return nn.Sequential(spectral_norm(nn.Linear(6, 20)), nn.Tanh(), nn.Linear(20, 6))


def mean_square(model: nn.Module, rows: Rows) -> Tensor:
    found: Tensor = (model(rows["x"]) - rows["x"]).square().mean()
    return found


def task_of(model: Callable[[], nn.Module]) -> Supervised:
    return supervised(model, mean_square, DATA, batch_size=8, held_out=DATA, metrics={"loss": mean_square})


def gradient_of(task: Task, weights: Float32Array) -> Float32Array:
    found = TaskObjective(task, seed=0).first_gradient(weights, DATA)
    return np.concatenate([found.losses, found.total])


def buffers_of(task: Supervised) -> dict[str, bytes]:
    return {name: buffer.numpy().tobytes() for name, buffer in task.model.named_buffers()}


@pytest.mark.parametrize("model", [Scaled, spectral])
def test_each_loss_is_as_the_first_one_and_that_of_the_graph(model: Callable[[], nn.Module]) -> None:
    task = task_of(model)
    weights, before = flat_weights(task.tensors), buffers_of(task_of(model))
    assert len(task.layout.tensors) > 1
    expected = gradient_of(task, weights)
    np.testing.assert_array_equal(gradient_of(task, weights), expected)
    graph = received(task.as_graph())
    np.testing.assert_allclose(gradient_of(graph, weights), expected, rtol=1e-4, atol=1e-6)
    trials = Trials(1, Perturbation(0.1, 1), group_size=4, first_member=0, n_members=8)
    its, graphs = (TaskObjective(each, seed=0).evaluate(weights, DATA, trials, threads=1) for each in (task, graph))
    np.testing.assert_allclose(graphs, its, rtol=1e-5)
    assert buffers_of(task) == before
    assert task.evaluate(weights, threads=1)["loss"] > 0.0
    assert buffers_of(task) == before


def test_a_model_is_judged_and_saved_with_buffers_of_its_data() -> None:
    task = task_of(Scaled)
    weights, own = flat_weights(task.tensors), Scaled()
    own.load_state_dict(safetensors.torch.load(task.state_dict(weights, {})))
    assert own.n_calls == 5  # as many as there are groups
    assert (own.mean - 1.0).min() > 0.2
    rows = {"x": X}
    assert task.evaluate(weights, threads=1)["loss"] == pytest.approx(mean_square(own.eval(), rows).item())


def test_a_spectral_norm_is_found_at_once() -> None:
    layer: Any = spectral_norm(nn.Linear(6, 20))
    with torch.no_grad():
        layer.parametrizations.weight.original.copy_(torch.randn(20, 6, generator=torch.Generator().manual_seed(1)))
    parametrization = layer.parametrizations.weight[0]
    with learning(layer), buffers_taken_back(layer):
        assert parametrization.n_power_iterations == POWER_ITERATIONS
        assert torch.linalg.matrix_norm(layer.weight, 2).item() == pytest.approx(1.0, rel=0.02)
    assert parametrization.n_power_iterations == 1


def test_buffers_that_no_loss_changes_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
    model.register_buffer("still", torch.ones(3))
    still, task = model.get_buffer("still"), task_of(lambda: model)
    task.evaluate(flat_weights(task.tensors), threads=1)
    assert model.get_buffer("still") is still
    seen = []

    def watched(model: nn.Module, rows: Rows) -> Tensor:
        seen.append(model.get_buffer("still") is still)
        return mean_square(model, rows)

    task = supervised(model, watched, DATA, batch_size=8)
    for _ in range(2):
        gradient_of(task, flat_weights(task.tensors))
    assert seen == [False, True]


def test_a_loss_that_fails_says_nothing_of_buffers() -> None:
    model = Scaled()
    mean, has_failed = model.mean, False

    def failing(model: nn.Module, rows: Rows) -> Tensor:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            raise ValueError("no")
        return mean_square(model, rows)

    task = supervised(model, failing, DATA, batch_size=8)
    weights = flat_weights(task.tensors)
    with pytest.raises(ValueError, match="no"):
        gradient_of(task, weights)
    assert model.mean is mean
    np.testing.assert_array_equal(gradient_of(task, weights), gradient_of(task, weights))
    assert model.mean is mean
    assert float(model.n_calls) == 0.0


def test_a_buffer_that_gives_way_to_another_has_changed() -> None:
    model = Scaled()
    with buffers_taken_back(model) as have_changed:
        assert not have_changed()
        model.n_calls = model.n_calls + 1
        assert have_changed()
    assert float(model.n_calls) == 0.0


def test_tied_buffers_stay_tied() -> None:
    model = nn.Sequential(Scaled(), Scaled())
    model[1].mean = model[0].mean
    with buffers_taken_back(model) as have_changed:
        assert model[1].mean is model[0].mean
        model(X)
        assert have_changed()
