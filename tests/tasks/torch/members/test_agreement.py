import pytest
import torch
from torch import Tensor

from fedlearn.tasks.torch.members.agreement import agree

LOSSES = torch.tensor([2.0, 2.1, 1.9, 2.05])


@pytest.mark.parametrize("gap", [0.0, 3e-5, -5e-4])
def test_what_noise_drowns_is_no_difference(gap: float) -> None:
    assert agree(LOSSES, LOSSES + gap)


@pytest.mark.parametrize(
    "other",
    [
        LOSSES + torch.tensor([0.0, 0.0, 0.0, 2e-3]),
        LOSSES.mean().expand(4),
        LOSSES[:3],
        torch.tensor([2.0, 2.1, 1.9, float("nan")]),
        (LOSSES,),
        {"loss": LOSSES},
    ],
)
def test_other_losses_or_another_structure_differ(other: object) -> None:
    assert not agree(LOSSES, other)


def test_members_without_spread_must_agree_to_the_last_digits() -> None:
    same = torch.full((4,), 3.0)
    assert agree(same, same + 1e-5)
    assert not agree(same, same + 1e-3)


def test_what_is_not_finite_must_be_so_in_both() -> None:
    some = torch.tensor([1.0, float("nan"), float("inf"), 2.0])
    assert agree(some, torch.tensor([1.0, float("inf"), float("nan"), 2.0]))
    assert not agree(some, torch.tensor([1.0, 0.0, float("inf"), 2.0]))


@pytest.mark.parametrize(("n_other", "expected"), [(0, True), (2, True), (3, False)])
def test_few_choices_may_hang_on_a_last_digit(n_other: int, expected: bool) -> None:
    tokens = torch.zeros(20, dtype=torch.int64)
    others = tokens.clone()
    others[:n_other] = 1
    assert agree(tokens, others) == expected


def test_nothing_agrees_with_nothing() -> None:
    nothing: list[Tensor] = [torch.zeros(4, 0), torch.zeros(4, 0, dtype=torch.int64)]
    assert agree(nothing, nothing)
