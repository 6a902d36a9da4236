from collections.abc import Callable

import numpy as np
import pytest

from fedlearn.tasks.task import Batch, flat_weights
from fedlearn.tasks.user.measure_choice import parts_without_gradient
from fedlearn.tasks.user.task_objective import TaskObjective

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from fedlearn.tasks.torch.backward import Backward  # noqa: E402
from fedlearn.tasks.torch.supervised import Rows, supervised  # noqa: E402

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(2))

Run = Callable[[nn.Module, Tensor], Tensor]
RUNS: dict[str, Run] = {
    "reentrant": lambda block, x: checkpoint(block, x, use_reentrant=True),
    "not reentrant": lambda block, x: checkpoint(block, x, use_reentrant=False),
}

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")


class Blocks(nn.Module):
    """A linear layer, a block that a function runs, and another linear layer."""

    def __init__(self, run: Run = lambda block, x: block(x)) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.first(x)
        found: Tensor = self.last(hidden + self.run(self.block, hidden))
        return found


class FromRows(Blocks):
    """The same without the first layer, so that the block is given rows."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.run(self.block, x))
        return found


def loss_of(model: nn.Module, rows: Rows) -> Tensor:
    found: Tensor = model(rows["x"]).square().mean()
    return found


def gradient(model: Blocks, parameters: list[nn.Parameter]) -> Tensor:
    backward = Backward(model.parameters)
    for x in (2.0 * X, X):  # the way that the first loss showed is taken again
        found = backward.gradient(loss_of(model, {"x": x}), parameters)
    return found


@pytest.mark.parametrize("how", RUNS)
def test_a_block_with_a_checkpoint_has_the_gradient_that_it_has_without(how: str) -> None:
    expected, model = Blocks(), Blocks(RUNS[how])
    found = gradient(model, list(model.parameters()))
    assert torch.equal(found, gradient(expected, list(expected.parameters())))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_block_has_its_gradient_where_nothing_before_it_is_asked_for() -> None:
    expected, model = Blocks(), Blocks(RUNS["reentrant"])
    found = gradient(model, list(model.block.parameters()))
    assert found.abs().max() > 1e-3
    assert torch.equal(found, gradient(expected, list(expected.block.parameters())))


def test_what_the_user_accumulated_stays() -> None:
    model = Blocks(RUNS["reentrant"])
    own = {name: torch.full_like(tensor, 7.0) for name, tensor in model.named_parameters() if name != "first.bias"}
    for name, parameter in model.named_parameters():
        parameter.grad = own.get(name)
    gradient(model, list(model.last.parameters()))
    for name, parameter in model.named_parameters():
        assert parameter.grad is own.get(name)
    assert all((tensor == 7.0).all() for tensor in own.values())


def test_what_the_user_accumulated_stays_where_the_way_back_fails() -> None:
    def fail(_: Tensor) -> None:
        raise RuntimeError("no way back")

    model = Blocks(RUNS["reentrant"])
    next(model.block.parameters()).register_hook(fail)  # type: ignore[no-untyped-call]
    own = model.last.weight.grad = torch.ones_like(model.last.weight)
    with pytest.raises(RuntimeError, match="no way back"):
        gradient(model, list(model.parameters()))
    assert model.last.weight.grad is own
    assert model.last.bias.grad is None


def test_backward_is_for_checkpoints_alone() -> None:
    model = Blocks()
    accumulated: list[Tensor] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(accumulated.append)  # type: ignore[no-untyped-call]
    gradient(model, list(model.last.parameters()))
    assert not accumulated
    model.run = RUNS["reentrant"]
    gradient(model, list(model.last.parameters()))
    assert accumulated


@pytest.mark.parametrize(("model", "hidden"), [(Blocks, 0), (FromRows, 4)])
def test_parameters_that_pytorch_leaves_without_a_gradient_are_named(model: type[Blocks], hidden: int) -> None:
    task = supervised(lambda: model(RUNS["reentrant"]), loss_of, {"x": X}, batch_size=6, train=("block", "last"))
    found = parts_without_gradient(TaskObjective(task, seed=3), task.data)
    assert found == ["block.0.weight", "block.0.bias", "block.2.weight", "block.2.bias"][:hidden]


def test_what_a_task_does_not_train_keeps_what_the_user_accumulated() -> None:
    module = Blocks(RUNS["reentrant"])
    own = module.first.weight.grad = torch.ones_like(module.first.weight)
    task = supervised(module, loss_of, {"x": X}, batch_size=6, train=("block",))
    batch = Batch({"x": np.stack([X.numpy()[:6], X.numpy()[6:]])}, (1, 2))
    assert task.loss_gradients(flat_weights(task.tensors), batch).total.any()
    assert module.first.weight.grad is own
    assert (own == 1.0).all()
