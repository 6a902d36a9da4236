"""Gradients of graphs, which are those of their modules or refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils.checkpoint import checkpoint  # noqa: E402

from fedlearn.es.layout import Float32Array  # noqa: E402
from fedlearn.graphs.graph import GraphError  # noqa: E402
from fedlearn.tasks.task import Task, flat_weights  # noqa: E402
from fedlearn.tasks.torch.supervised import Rows, Supervised, supervised  # noqa: E402
from fedlearn.tasks.torch_graph.sharing import received, unpacked  # noqa: E402
from fedlearn.tasks.user.task_objective import TaskObjective  # noqa: E402

X = torch.randn(20, 6, generator=torch.Generator().manual_seed(3))
Loss = Callable[[nn.Module, Rows], Any]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def detached(model: nn.Module, rows: Rows) -> Tensor:
    return -F.cosine_similarity(model(1.1 * rows["x"]), model(rows["x"]).detach()).mean()


def straight_through(model: nn.Module, rows: Rows) -> Tensor:
    latent = model(rows["x"])
    loss: Tensor = (latent + (latent.round() - latent).detach() - rows["x"][:, :3]).square().mean()
    return loss


def without_gradients(model: nn.Module, rows: Rows) -> Tensor:
    with torch.no_grad():
        target = model(rows["x"]) + 1.0
    return F.mse_loss(model(1.1 * rows["x"]), target)


@torch.no_grad()  # type: ignore[untyped-decorator]
def target_of(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    found = model(x)
    with torch.enable_grad():
        again = model(x)
    return found.max(-1).values, found.argmax(-1), again


def without_gradients_but_inside(model: nn.Module, rows: Rows) -> Tensor:
    best, place, again = target_of(model, rows["x"])
    return F.mse_loss(again.amax(-1), best + 1.0) + F.cross_entropy(model(rows["x"]), place)


def data_alone(model: nn.Module, rows: Rows) -> Tensor:
    return F.mse_loss(model(1.1 * rows["x"]), model(rows["x"]).data + 1.0)


def checkpointed(model: nn.Module, rows: Rows) -> Tensor:
    assert isinstance(model, nn.Sequential)
    found: Tensor = checkpoint(model[1:], model[0](rows["x"]), use_reentrant=True)
    return found.square().mean()


def checkpointed_from_the_rows(model: nn.Module, rows: Rows) -> Tensor:
    assert isinstance(model, nn.Sequential)
    found: Tensor = model[2](checkpoint(model[:2], rows["x"], use_reentrant=True))
    return found.square().mean()


def task_of(loss: Loss, model: Callable[[], nn.Module] = network) -> Supervised:
    return supervised(model, loss, {"x": X}, batch_size=8)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("loss", [checkpointed, checkpointed_from_the_rows])
def test_a_graph_has_the_gradient_of_a_module_with_checkpoints(loss: Loss) -> None:
    task = task_of(loss)
    weights = flat_weights(task.tensors)
    expected, found = gradient_of(task, weights), gradient_of(received(task.as_graph()), weights)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert (np.abs(expected[1:31]).max() > 1e-3) == (loss is checkpointed)


def gradient_of(task: Task, weights: Float32Array) -> Float32Array:
    found = TaskObjective(task, seed=5).first_gradient(weights, {"x": X.numpy()})
    return np.concatenate([found.losses, found.total])


@pytest.mark.parametrize(
    "loss", [detached, straight_through, without_gradients, without_gradients_but_inside, data_alone]
)
def test_what_has_no_gradient_has_none_as_a_graph(loss: Loss) -> None:
    task = task_of(loss)
    weights = flat_weights(task.tensors)
    expected, found = gradient_of(task, weights), gradient_of(received(task.as_graph()), weights)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(expected[1:]).max() > 1e-3
    assert any(call.operator == "detach.default" for call in unpacked(task.as_graph()).graph.calls)


def field(model: nn.Module, rows: Rows) -> Tensor:
    x = rows["x"].clone().requires_grad_(True)
    with torch.enable_grad():
        value = model(x)
        (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        (curve,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    found: Tensor = (1.0 - curve + value.mean()).square().mean()
    return found


def penalised(model: nn.Module, rows: Rows) -> Tensor:
    x = rows["x"].clone().requires_grad_(True)
    scores = model(x)
    (slope,) = torch.autograd.grad(scores.logsumexp(1).sum(), x, create_graph=True)
    found: Tensor = F.cross_entropy(scores, rows["x"].argmax(1) % 3) + (slope.norm(dim=1) - 1.0).square().mean()
    return found


def one_step_ahead(model: nn.Module, rows: Rows) -> Tensor:
    parameters = dict(model.named_parameters())
    first, second = rows["x"].chunk(2)
    before = model(first).softmax(-1).square().mean()
    steps = torch.autograd.grad(before, list(parameters.values()), create_graph=True)
    moved = {name: tensor - step for (name, tensor), step in zip(parameters.items(), steps, strict=True)}
    found: Tensor = torch.func.functional_call(model, moved, (second,)).square().mean()
    return found


def field_with_targets(model: nn.Module, rows: Rows) -> Tensor:
    x = rows["x"].clone().requires_grad_(True)
    with torch.enable_grad():
        value = model(x)
        (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    with torch.no_grad():
        target = model(rows["x"]).mean()
    ends = value.detach() + model(rows["x"]).data
    found: Tensor = (slope - target).square().mean() + (model(2.0 * rows["x"]) - ends).square().mean()
    return found


@pytest.mark.parametrize("loss", [field, penalised, one_step_ahead, field_with_targets])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.Softplus, nn.GELU, nn.ReLU])
def test_a_loss_that_differentiates_has_its_gradient_as_a_graph(
    loss: Loss, activation: Callable[[], nn.Module]
) -> None:
    task = task_of(
        loss, lambda: nn.Sequential(nn.Linear(6, 8), activation(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    )
    weights = flat_weights(task.tensors)
    expected, found = gradient_of(task, weights), gradient_of(received(task.as_graph()), weights)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    operators = [call.operator for call in unpacked(task.as_graph()).graph.calls]
    assert operators.count("detach.default") == (5 if loss is field_with_targets else 0)


def test_what_stays_refused_is_said_as_before() -> None:
    def branching(model: nn.Module, rows: Rows) -> Any:  # noqa: ANN401
        (slope,) = torch.autograd.grad(field(model, rows), list(model.parameters())[:1], create_graph=True)
        return slope.square().mean() if float(slope.sum()) > 0 else slope.mean()

    with pytest.raises(GraphError, match=r"the model (and|or) its loss .*test_gradients.py:\d+: "):
        task_of(branching).as_graph()


def test_what_has_no_gradient_anyway_is_not_stopped() -> None:
    def loss(model: nn.Module, rows: Rows) -> Tensor:
        with torch.no_grad():
            x = (rows["x"].detach() * 2.0).relu()
            last = model(x).argmax(-1)
        found: Tensor = model(x).detach_().detach().square().mean() + F.cross_entropy(model(x), last)
        return found

    calls = unpacked(task_of(loss).as_graph()).graph.calls
    assert [call.operator for call in calls].count("detach.default") == 3


class Reversed(torch.autograd.Function):  # type: ignore[name-defined, misc]
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ANN401, ARG004
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: ANN401, ARG004
        return -gradients[0]


def reversed_loss(model: nn.Module, rows: Rows) -> Tensor:
    found: Tensor = Reversed.apply(model(rows["x"]))
    return found.square().mean()


def hooked(model: nn.Module, rows: Rows) -> Tensor:
    found = model(rows["x"])
    if found.requires_grad:
        found.register_hook(lambda gradient: 2.0 * gradient)
    loss: Tensor = found.square().mean()
    return loss


@pytest.mark.parametrize("loss", [reversed_loss, hooked])
def test_a_backward_pass_of_its_own_is_refused(loss: Loss) -> None:
    with pytest.raises(GraphError, match="loss: expected the gradient that the module has, got another as a graph"):
        task_of(loss).as_graph()


def test_a_gradient_that_is_none_is_none_as_a_graph() -> None:
    def mistakes(model: nn.Module, rows: Rows) -> Tensor:
        share: Tensor = (model(rows["x"]).argmax(-1) != 1).float().mean()
        return share

    assert unpacked(task_of(mistakes).as_graph()).graph.calls
