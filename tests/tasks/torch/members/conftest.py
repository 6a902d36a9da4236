from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.tasks.torch.conftest import Draw

if TYPE_CHECKING:
    from torch import nn

    from fedlearn.tasks.torch.members.execution_plans import ExecutionPlans
    from fedlearn.tasks.torch.members.members import TorchMembers

Make = Callable[..., "TorchMembers"]


@pytest.fixture
def linear() -> "nn.Linear":
    import torch

    torch.manual_seed(0)
    return torch.nn.Linear(4, 3)


@pytest.fixture
def plans() -> "ExecutionPlans":
    from fedlearn.tasks.torch.members.execution_plans import ExecutionPlans

    return ExecutionPlans(dict)


@pytest.fixture
def make(linear: "nn.Linear", plans: "ExecutionPlans", draw: Draw) -> "Iterator[Make]":
    """Members of the linear layer, which need no gradients: `make(n_members, n_groups=1)`."""
    import torch

    from fedlearn.tasks.torch.members.members import TorchMembers

    def made(n_members: int, n_groups: int = 1) -> TorchMembers:
        parameters = dict(linear.named_parameters())
        weights = [parameter.detach().clone() for parameter in parameters.values()]
        noise = draw(list(parameters.values()), n_members)
        return TorchMembers(parameters, weights, noise, n_groups=n_groups, plans=plans)

    with torch.no_grad():
        yield made
