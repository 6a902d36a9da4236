"""Steps whose loss is somebody else's: what workers measure is the gradient of that loss."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from fedlearn.compat.expansion import Expansion, Forwarded  # noqa: E402
from fedlearn.compat.layers import Entry, Layers  # noqa: E402
from fedlearn.tasks.task import Batch, flat_weights  # noqa: E402


class Sum(nn.Module):
    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        return x + sum(others)


ENTRIES: list[Entry] = [
    (nn.Linear, {"in_features": 3, "out_features": 4}, (6, 3)),
    (nn.Tanh, {}, (6, 4)),
    (nn.Linear, {"in_features": 4, "out_features": 2}, (6, 4)),
]


def expansion(entries: list[Entry] = ENTRIES, n_machines: int = 2) -> Expansion:
    torch.manual_seed(3)
    return Expansion(Layers(entries), entries, n_machines=n_machines)


def forwarded(of: Expansion, n_rows: int, seed: int, values: dict[str, Tensor] | None = None) -> tuple[Forwarded, Any]:
    """Rows after `loss.backward()`, and the loss that was differentiated."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(n_rows, 3, generator=generator), torch.randn(n_rows, 2, generator=generator)
    with torch.no_grad():
        prediction = of.layers(x, values or {})
    prediction.requires_grad_()
    F.mse_loss(prediction, y).backward()  # type: ignore[no-untyped-call]
    return Forwarded(x, values or {}, prediction, prediction.grad), lambda: F.mse_loss(of.layers(x, values or {}), y)


def measured(of: Expansion, columns: dict[str, Any], n_members: int) -> tuple[Any, Any]:
    """Losses and mean gradient of the members, each of which sees its part of the rows."""
    rows = {name: column.reshape(n_members, -1, *column.shape[1:]) for name, column in columns.items()}
    found = of.task.loss_gradients(flat_weights(of.task.tensors), Batch(rows, (0,) * n_members))
    return found.losses, found.total / n_members


def gradient_of(of: Expansion, loss: Any) -> Any:  # noqa: ANN401 (a function)
    found = torch.autograd.grad(loss(), list(of.layers.parameters()))
    return np.concatenate([each.numpy().reshape(-1) for each in found])


@pytest.mark.parametrize("n_rows", [6, 5, 2, 13])
def test_members_together_have_the_gradient_of_the_loss_for_any_number_of_rows(n_rows: int) -> None:
    of = expansion()
    one, loss = forwarded(of, n_rows, seed=1)
    columns, n_members = of.columns([one])
    assert of.batch.part_size == 3
    assert n_members == -(-n_rows // 3)
    losses, gradient = measured(of, columns, n_members)
    np.testing.assert_allclose(losses, 0.0, atol=1e-6)
    np.testing.assert_allclose(gradient, gradient_of(of, loss), rtol=1e-5, atol=1e-7)


def test_losses_of_several_batches_add_up() -> None:
    of = expansion()
    (one, first), (other, second) = forwarded(of, 4, seed=1), forwarded(of, 7, seed=2)
    _, gradient = measured(of, *of.columns([one, other]))
    np.testing.assert_allclose(gradient, gradient_of(of, lambda: first() + second()), rtol=1e-5, atol=1e-7)


def test_a_value_that_no_layer_gives_travels_with_the_rows() -> None:
    entries: list[Entry] = [*ENTRIES, (Sum, {"dependencies": ["noise"]}, [(6, 2), (6, 2)])]
    of = expansion(entries)
    one, loss = forwarded(of, 6, seed=1, values={"noise": torch.arange(12.0).reshape(6, 2)})
    _, gradient = measured(of, *of.columns([one]))
    np.testing.assert_allclose(gradient, gradient_of(of, loss), rtol=1e-5, atol=1e-7)


def test_tokens_are_the_input_of_an_embedding() -> None:
    entries: list[Entry] = [
        (nn.Embedding, {"num_embeddings": 5, "embedding_dim": 2}, (4, 3)),
        (nn.Flatten, {}, (4, 3, 2)),
        (nn.Linear, {"in_features": 6, "out_features": 2}, (4, 6)),
    ]
    of = expansion(entries, n_machines=1)
    x, y = torch.tensor([[1, 2, 3], [0, 4, 4]]), torch.tensor([0, 1])
    prediction = of.layers(x).detach().requires_grad_()
    F.cross_entropy(prediction, y).backward()  # type: ignore[no-untyped-call]
    _, gradient = measured(of, *of.columns([Forwarded(x, {}, prediction, prediction.grad)]))
    np.testing.assert_allclose(
        gradient, gradient_of(of, lambda: F.cross_entropy(of.layers(x), y)), rtol=1e-5, atol=1e-7
    )


def test_a_step_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="optim_step: expected rows to learn from, got none"):
        expansion().columns([])


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.zeros(2, 4), r"x: expected rows \[3\] of torch.float32, got \[4\]"),
        (torch.zeros(2, 3, dtype=torch.int64), r"x: expected rows \[3\] of torch.float32, got \[3\] of torch.int64"),
    ],
)
def test_rows_that_workers_can_not_compute_with_are_refused(x: Tensor, said: str) -> None:
    of = expansion()
    one, _ = forwarded(of, 2, seed=1)
    with pytest.raises(ValueError, match=said):
        of.check(Forwarded(x, {}, one.prediction, one.cotangent))


def test_rows_in_double_precision_are_taken() -> None:
    of = expansion()
    one, _ = forwarded(of, 2, seed=1)
    of.check(Forwarded(one.x.double(), {}, one.prediction, one.cotangent))


def test_a_prediction_from_a_replaced_value_has_no_gradient_here() -> None:
    entries: list[Entry] = [
        (nn.Linear, {"in_features": 3, "out_features": 2, "out_variables": ["a"]}, (6, 3)),
        (Sum, {"dependencies": ["a"]}, (6, 2)),
    ]
    of = expansion(entries)
    one, _ = forwarded(of, 2, seed=1, values={"a": torch.zeros(2, 2)})
    with pytest.raises(ValueError, match="got one with another 'a'; call forward with"):
        of.check(one)
