from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
from torch.utils._python_dispatch import TorchDispatchMode

from fedlearn.tasks.torch.members.batched import batched
from fedlearn.tasks.torch.members.noise import Factors, Noise
from fedlearn.tasks.torch.rules import products
from fedlearn.tasks.torch.rules.products import add_product, plain_product

Draw = Callable[..., list[Noise]]


class Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the names of PyTorch's operations."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls = calls

    def __torch_dispatch__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        self._calls.append(str(function))
        return function(*args, **(kwargs or {}))


N_MEMBERS = 5


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("shape", [(6,), (1, 6), (4, 6), (2, 3, 6)])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("is_shared", [False, True])
def test_products_are_those_of_the_plain_form(
    rank: int, shape: tuple[int, ...], has_bias: bool, is_shared: bool, draw: Draw
) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(6, 3, bias=has_bias)
    noise = draw(list(layer.parameters()), N_MEMBERS, rank, sigma=0.5)
    x = torch.randn(shape) if is_shared else torch.randn(N_MEMBERS, *shape)
    with torch.no_grad():
        shared, own = ((x,), ()) if is_shared else ((), (x,))
        found = batched(layer, list(layer.parameters()), noise, shared, own)
        assert isinstance(noise[0], Factors)
        for member in range(N_MEMBERS):
            bias = noise[1].added_to(layer.bias)[member] if has_bias else None
            mine = x if is_shared else x[member]
            expected = plain_product(mine, layer.weight, bias, noise[0].rows[member], noise[0].columns[member])
            dense = F.linear(mine, noise[0].added_to(layer.weight)[member], bias)
            torch.testing.assert_close(found[member], expected)
            torch.testing.assert_close(expected, dense)


def test_a_bias_that_is_no_parameter_is_added_as_it_is(draw: Draw) -> None:
    weight, bias, x = torch.randn(3, 6), torch.randn(3), torch.randn(N_MEMBERS, 4, 6)
    noise = draw([weight], N_MEMBERS)
    found = batched(lambda x: F.linear(x, weight, bias), [weight], noise, own=(x,))
    torch.testing.assert_close(found, x @ noise[0].added_to(weight).mT + bias)


def test_a_bias_of_each_member_is_its_own(draw: Draw) -> None:
    weight, x = torch.randn(3, 6), torch.randn(N_MEMBERS, 4, 6)
    noise = draw([weight], N_MEMBERS)
    found = batched(lambda x: F.linear(x, weight, x[0, :3]), [weight], noise, own=(x,))
    torch.testing.assert_close(found, x @ noise[0].added_to(weight).mT + x[:, :1, :3])


def test_members_in_another_dimension_are_found(draw: Draw) -> None:
    weight, x = torch.randn(3, 6), torch.randn(N_MEMBERS, 4, 6)
    noise = draw([weight], N_MEMBERS)

    def function(x: Tensor) -> Tensor:
        # vmap puts members last here.
        return F.linear(torch.stack([x, x], -1)[..., 0], weight)

    found = batched(function, [weight], noise, own=(x,))
    torch.testing.assert_close(found, x @ noise[0].added_to(weight).mT)


def test_a_product_within_another_vmap_is_right(draw: Draw) -> None:
    weight, x = torch.randn(3, 6), torch.randn(N_MEMBERS, 4, 6)
    noise = draw([weight], N_MEMBERS)
    found = batched(lambda x: torch.vmap(lambda row: F.linear(row, weight))(x), [weight], noise, own=(x,))
    torch.testing.assert_close(found, x @ noise[0].added_to(weight).mT)


def test_a_derivative_by_the_input_is_right(draw: Draw) -> None:
    weight, x = torch.randn(3, 6), torch.randn(N_MEMBERS, 6)
    noise = draw([weight], N_MEMBERS)

    def total(x: Tensor) -> Tensor:
        return F.linear(x, weight).sum()

    found = batched(torch.func.grad(total), [weight], noise, own=(x,))
    torch.testing.assert_close(found, noise[0].added_to(weight).sum(1))


@pytest.mark.skipif(not products.HAS_ONEDNN, reason="this PyTorch is built without oneDNN")
@pytest.mark.parametrize("is_turned", [False, True])
def test_either_library_adds_the_same_product(is_turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    y, a, b = torch.randn(5, 7), torch.randn(5, 33), torch.randn(7, 33).mT if is_turned else torch.randn(33, 7)
    expected = y + a @ b
    for least, threshold in ((0, True), (2**62, False)):
        monkeypatch.setattr(products, "ONEDNN_PRODUCTS", least)
        found = y.clone()
        calls: list[str] = []
        with Seen(calls):
            add_product(found, a, b)
        torch.testing.assert_close(found, expected)
        assert any("mkldnn" in call for call in calls) == threshold
