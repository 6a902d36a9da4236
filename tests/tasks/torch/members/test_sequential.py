from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from fedlearn.tasks.torch.members.noise import Noise
from fedlearn.tasks.torch.members.sequential import sequential

Draw = Callable[..., list[Noise]]


def bits(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().view(torch.int32)


@pytest.mark.parametrize("rank", [1, 2])
def test_each_member_finds_its_own_weights_in_the_module(rank: int, draw: Draw) -> None:
    module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Linear(4, 3))
    parameters = list(module.parameters())
    weights = [parameter.detach().clone() for parameter in parameters]
    noise = draw(parameters, 4, rank)
    found = sequential(lambda: [p.detach().clone() for p in parameters], parameters, weights, noise)
    for member, tensors in enumerate(found):
        for tensor, weight, one in zip(tensors, weights, noise, strict=True):
            torch.testing.assert_close(tensor, one.added_to(weight)[member])


def test_weights_are_restored_to_the_bit_even_after_an_error(draw: Draw) -> None:
    linear = nn.Linear(4, 3)
    parameters = list(linear.parameters())
    weights = [parameter.detach().clone() for parameter in parameters]
    before = [bits(parameter) for parameter in parameters]

    def fail() -> None:
        linear.weight.data.zero_()
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        sequential(fail, parameters, weights, draw(parameters, 2))
    assert all(torch.equal(bits(p), b) for p, b in zip(parameters, before, strict=True))


@pytest.mark.parametrize(
    "tensor", [torch.randn(3, 4).t(), torch.randn(4, 3, 2, 2).contiguous(memory_format=torch.channels_last)]
)
def test_parameters_that_lie_otherwise_in_memory_are_written(tensor: Tensor, draw: Draw) -> None:
    parameter = nn.Parameter(tensor)
    weights = [parameter.detach().clone()]
    noise = draw([parameter], 2)
    found = sequential(lambda: parameter.detach().clone(), [parameter], weights, noise)
    torch.testing.assert_close(torch.stack(found), noise[0].added_to(weights[0]))
    assert torch.equal(parameter, weights[0])
    assert not parameter.is_contiguous()


def test_members_are_given_what_is_theirs_and_seeded_anew(draw: Draw) -> None:
    parameter = nn.Parameter(torch.zeros(2))
    seeds = iter((3, 4))

    @contextmanager
    def seeded() -> Iterator[None]:
        torch.manual_seed(next(seeds))
        yield

    own = {"x": torch.tensor([[1.0], [2.0]]), "name": "as it is"}
    found = sequential(
        lambda shared, own: (shared, own["x"].item(), own["name"], torch.rand(1).item()),
        [parameter],
        [torch.zeros(2)],
        draw([parameter], 2),
        ("all",),
        (own,),
        seeded=seeded,
    )
    draws = []
    for seed in (3, 4):
        torch.manual_seed(seed)
        draws.append(torch.rand(1).item())
    assert found == [("all", 1.0, "as it is", draws[0]), ("all", 2.0, "as it is", draws[1])]
