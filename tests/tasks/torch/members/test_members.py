from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fedlearn.tasks.torch.members.execution_plans import ExecutionPlans  # noqa: E402
from fedlearn.tasks.torch.members.refusals import Refused  # noqa: E402
from tests.tasks.torch.conftest import Draw  # noqa: E402
from tests.tasks.torch.members.conftest import Make  # noqa: E402
from tests.tasks.torch.members.layers import CHANCES, expected  # noqa: E402

TOO_LITTLE = 1e-9
"""Of the parameters in a loss: what is drawn hides it."""


@pytest.mark.parametrize(
    ("n_members", "n_groups"), [(1, 1), (3, 1), (7, 1), (40, 1), (64, 4), (60, 10), (10, 5), (66, 2), (48, 16)]
)
def test_members_are_given_what_is_their_groups(n_members: int, n_groups: int, make: Make, linear: nn.Linear) -> None:
    members = make(n_members, n_groups)
    assert (len(members), members.group_size) == (n_members, n_members // n_groups)
    grouped = np.random.default_rng(1).standard_normal((n_groups, 2, 4))
    own = torch.randn(n_members, 2, 4)
    of_members = torch.from_numpy(grouped).float().repeat_interleave(members.group_size, 0) + own
    for _ in range(3):
        found = members(lambda data, x: linear(data["x"] + x), {"x": grouped}, own=(own,))
        torch.testing.assert_close(found, expected(members, of_members))


def test_each_gives_the_perturbed_tensors_by_name(make: Make, linear: nn.Linear, draw: Draw) -> None:
    noise = draw([linear.weight, linear.bias], 5)
    for member, tensors in enumerate(make(5).each()):
        assert list(tensors) == ["weight", "bias"]
        np.testing.assert_array_equal(tensors["weight"], noise[0].added_to(linear.weight)[member].numpy())
        np.testing.assert_array_equal(tensors["bias"], noise[1].added_to(linear.bias)[member].numpy())


def test_structures_of_results_are_kept(make: Make, linear: nn.Linear) -> None:
    found = make(12)(lambda: {"w": linear.weight * 1, "parts": (linear.bias.sum(), linear.bias * 2)})
    assert {name: type(part) for name, part in found.items()} == {"w": Tensor, "parts": tuple}
    assert found["w"].shape == (12, 3, 4)
    assert [part.shape for part in found["parts"]] == [(12,), (12, 3)]


def test_modules_and_bound_functions_are_functions_too(make: Make, linear: nn.Linear, plans: ExecutionPlans) -> None:
    members, x = make(6), torch.randn(6, 2, 4)
    torch.testing.assert_close(members(linear, own=(x,)), expected(members, x))
    torch.testing.assert_close(members(partial(linear.forward), own=(x,)), expected(members, x))
    assert str(plans).startswith("Linear: ")
    assert "\nforward: " in str(plans)


def test_a_function_is_tried_once_however_often_it_is_defined(
    make: Make, linear: nn.Linear, plans: ExecutionPlans
) -> None:
    members = make(6)
    for scale in (1.0, 2.0):
        members(partial(lambda s: linear.weight.sum() + linear.bias.sum() * s, scale))
    assert len(str(plans).split("<lambda>:")) == 2


def test_random_draws_are_those_of_the_groups_seed(make: Make, linear: nn.Linear, plans: ExecutionPlans) -> None:
    def noisy() -> Tensor:
        loss: Tensor = (linear.weight.sum() + linear.bias.sum()) * TOO_LITTLE + torch.rand(())
        return loss

    state = torch.get_rng_state()
    drawn = []
    for seed in (5, 6):
        torch.manual_seed(seed)
        drawn.append(torch.rand(()))
    torch.set_rng_state(state)
    members = make(16, 2)
    for _ in range(3):
        found = members(noisy, seeds=(5, 6))
        assert torch.equal(found, torch.stack(drawn).repeat_interleave(8))
    assert torch.equal(torch.get_rng_state(), state)
    assert "not at once" not in str(plans)


@pytest.mark.parametrize("chance", CHANCES)
def test_random_draws_are_the_same_one_by_one(make: Make, linear: nn.Linear, chance: Callable[[], float]) -> None:
    def noisy() -> Any:  # noqa: ANN401
        return ((linear.weight.sum() + linear.bias.sum()) * TOO_LITTLE + chance()).item()

    found = make(8, 2)(noisy, seeds=(5, 6))
    assert len(set(found.tolist())) == 2
    assert len(set(found[:4].tolist())) == 1


def test_refusals_are_raised_in_later_calls_too(make: Make, linear: nn.Linear) -> None:
    def function(x: Tensor) -> Tensor:
        averages = torch.zeros(3), torch.ones(3)
        loss: Tensor = nn.functional.batch_norm(linear(x), *averages, training=len(x) > 2).sum()
        return loss

    members = make(8)
    members(function, torch.randn(1, 2, 4))
    with pytest.raises(Refused, match="batch_norm with training=True moves its running averages"):
        members(function, torch.randn(1, 3, 4))


def test_draws_without_seeds_are_refused(make: Make, linear: nn.Linear) -> None:
    def dropping(x: Tensor) -> Tensor:
        return nn.functional.dropout(linear(x)).sum()

    x = torch.randn(1, 2, 4)
    with pytest.raises(Refused, match="dropping draws random numbers during trials, so that members differ by luck"):
        make(8)(dropping, x)
    make(8)(dropping, x, seeds=(1,))
