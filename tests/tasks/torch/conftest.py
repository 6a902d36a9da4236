from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch import Tensor

    from fedlearn.tasks.torch.members.noise import Noise

SIGMA = 0.02

Draw = Callable[..., "list[Noise]"]
Losses = Callable[..., "tuple[Tensor, Tensor, Any]"]


@pytest.fixture(scope="session")
def draw() -> Draw:
    """Noise of members on tensors: `draw(tensors, n_members, rank=1, sigma=SIGMA)`."""
    import torch

    from fedlearn.es.layout import TensorSpec
    from fedlearn.tasks.torch.members.noise import Factors, Shift

    def signs(generator: torch.Generator, *shape: int) -> "Tensor":
        return torch.randint(0, 2, shape, generator=generator) * 2.0 - 1.0

    def drawn(tensors: "Sequence[Tensor]", n_members: int, rank: int = 1, sigma: float = SIGMA) -> "list[Noise]":
        generator = torch.Generator().manual_seed(1)
        noise: list[Noise] = []
        for tensor in tensors:
            spec = TensorSpec("", tuple(tensor.shape))
            if spec.is_matrix:
                rows, columns = (signs(generator, n_members, side, rank) for side in spec.sides)
                noise.append(Factors(rows * sigma / rank**0.5, columns))
            else:
                noise.append(Shift(signs(generator, n_members, *tensor.shape) * sigma))
        return noise

    return drawn


@pytest.fixture(scope="session")
def losses(draw: Draw) -> Losses:
    """What members give at once and one by one, and the mode: `losses(model, function, *data, rank=1)`."""
    import torch

    from fedlearn.tasks.torch.members.batched import batched
    from fedlearn.tasks.torch.members.mode import Perturbed
    from fedlearn.tasks.torch.members.sequential import sequential
    from fedlearn.tasks.torch.trees import stacked

    @torch.no_grad()
    def both(
        model: torch.nn.Module, function: Callable[..., Any], *data: "Tensor", rank: int = 1, n_members: int = 6
    ) -> "tuple[Tensor, Tensor, Perturbed]":
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        weights = [parameter.detach().clone() for parameter in parameters]
        noise = draw(parameters, n_members, rank)
        modes: list[Perturbed] = []
        alone = stacked(sequential(lambda *data: function(model, *data), parameters, weights, noise, data))
        at_once = batched(lambda *data: function(model, *data), parameters, noise, data, seen=modes.append)
        return at_once, alone, modes[0]

    return both
