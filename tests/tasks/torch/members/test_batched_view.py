import pytest
import torch
from torch import Tensor

from fedlearn.tasks.torch.members import batched_view
from fedlearn.tasks.torch.members.batched_view import BatchedView, is_true_of_all


def test_members_are_seen_in_whatever_dimension_they_lie() -> None:
    x = torch.randn(4, 2, 3)

    def function(member: Tensor, first: Tensor, second: Tensor) -> Tensor:
        seen = BatchedView(member, 4)
        assert seen.can_unwrap(first, second, None, torch.zeros(2))
        assert seen.is_batched(second)
        assert not seen.is_batched(torch.zeros(2))
        assert torch.equal(seen.all(first), x)
        assert torch.equal(seen.all(second), x)
        assert seen.all(torch.zeros(2)).shape == (4, 2)
        return seen.one(x)

    out = torch.vmap(function, in_dims=(0, 0, 1))(torch.arange(4), x, x.transpose(0, 1))
    assert torch.equal(out, x)


def test_what_another_transform_wraps_is_out_of_reach() -> None:
    def function(member: Tensor, x: Tensor) -> Tensor:
        seen = BatchedView(member, 3)

        def inner(y: Tensor) -> Tensor:
            assert not seen.can_unwrap(x)
            return y

        torch.vmap(inner)(x)
        assert seen.can_unwrap(x)
        return x

    torch.vmap(function)(torch.arange(3), torch.randn(3, 2))


def test_without_sight_a_part_is_taken_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched_view, "IS_POSSIBLE", False)
    x = torch.randn(4, 2)

    def function(member: Tensor) -> Tensor:
        seen = BatchedView(member, 4)
        assert not seen.can_unwrap(x)
        assert not is_true_of_all(member >= 0)
        return seen.one(x)

    assert torch.equal(torch.vmap(function)(torch.arange(4)), x)


@pytest.mark.parametrize(("limit", "expected"), [(4, True), (3, False)])
def test_all_members_are_looked_at(limit: int, expected: bool) -> None:
    found = []

    def function(member: Tensor) -> Tensor:
        found.append(is_true_of_all(member < limit))
        return member

    torch.vmap(function)(torch.arange(4))
    assert found == [expected]
    assert is_true_of_all(torch.arange(4) < limit) == expected
