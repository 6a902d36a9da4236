from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.tasks.torch.members.batched import batched
from fedlearn.tasks.torch.members.mode import Perturbed, name_of
from fedlearn.tasks.torch.members.noise import Noise
from fedlearn.tasks.torch.members.refusals import Refused

Draw = Callable[..., list[Noise]]
N_MEMBERS = 3


@pytest.fixture
def weight() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 4)


def run(function: Callable[..., Tensor], weight: Tensor, noise: list[Noise], *own: Tensor) -> tuple[Tensor, Perturbed]:
    modes: list[Perturbed] = []
    return batched(function, [weight], noise, own=own, seen=modes.append), modes[0]


def test_whatever_has_no_rule_is_done_with_the_perturbed_tensor(weight: Tensor, draw: Draw) -> None:
    noise = draw([weight], N_MEMBERS)
    found, mode = run(lambda: torch.stack([weight.exp(), torch.tril(input=weight)]), weight, noise)
    dense = noise[0].added_to(weight)
    torch.testing.assert_close(found, torch.stack([dense.exp(), dense.tril()], 1))
    assert {name_of(function) for function in mode.by_tensor} == {"exp", "tril"}
    assert mode.own_numbers == weight.numel()


def test_parameters_in_lists_and_named_tuples_are_found(weight: Tensor, draw: Draw) -> None:
    noise = draw([weight], N_MEMBERS)
    found, _ = run(lambda: torch.cat([weight, weight]).sum() + torch.einsum("ij->", [weight]), weight, noise)
    torch.testing.assert_close(found, 3 * noise[0].added_to(weight).sum((1, 2)))


def test_questions_that_noise_does_not_answer_make_no_tensor(weight: Tensor, draw: Draw) -> None:
    def function() -> Tensor:
        assert weight.shape == (4, 4)
        assert (weight.dim(), len(weight), weight.dtype, weight.device) == (2, 4, torch.float32, torch.device("cpu"))
        return torch.zeros(())

    _, mode = run(function, weight, draw([weight], N_MEMBERS))
    assert mode.own_numbers == 0


def test_views_stand_for_the_perturbed_parameter(weight: Tensor, draw: Draw) -> None:
    noise = draw([weight], N_MEMBERS)
    x = torch.randn(N_MEMBERS, 2, 4)
    views: list[Callable[[], Tensor]] = [
        lambda: weight.t(), lambda: weight.T, lambda: weight.mT, lambda: torch.transpose(weight, 0, 1),
        lambda: weight.transpose(-1, -2), lambda: weight.detach().t(), lambda: weight.data.t(),
        lambda: weight.to(torch.float32).t(),
        lambda: weight.contiguous().T.contiguous(),
    ]  # fmt: skip
    for view in views:
        found, mode = run(lambda x, view=view: x @ view(), weight, noise, x)
        torch.testing.assert_close(found, x @ noise[0].added_to(weight).mT)
        assert not mode.by_tensor


def test_a_transpose_of_nothing_is_the_tensor_itself(weight: Tensor, draw: Draw) -> None:
    noise = draw([weight], N_MEMBERS)
    x = torch.randn(N_MEMBERS, 2, 4)
    found, _ = run(lambda x: x @ weight.transpose(1, 1), weight, noise, x)
    torch.testing.assert_close(found, x @ noise[0].added_to(weight))


def test_another_type_is_another_tensor(weight: Tensor, draw: Draw) -> None:
    noise = draw([weight], N_MEMBERS)
    found, _ = run(lambda: weight.to(torch.bfloat16), weight, noise)
    assert torch.equal(found, noise[0].added_to(weight).bfloat16())


def test_both_factors_of_a_product_may_be_parameters(weight: Tensor, draw: Draw) -> None:
    noise = draw([weight], N_MEMBERS)
    dense = noise[0].added_to(weight)
    for function in (lambda: weight @ weight, lambda: F.linear(weight, weight.t())):
        found, _ = run(function, weight, noise)
        torch.testing.assert_close(found, dense @ dense)


def test_sums_of_products_keep_their_factors(weight: Tensor, draw: Draw) -> None:
    noise = draw([weight], N_MEMBERS)
    x, dense = torch.randn(N_MEMBERS, 2, 4), noise[0].added_to(weight)
    found, _ = run(lambda x: torch.addmm(x[0], x, weight, beta=2, alpha=3), weight, noise, x)
    torch.testing.assert_close(found, 2 * x[:, :1] + 3 * x @ dense)
    found, _ = run(lambda x: torch.addmm(x[0], x, weight, beta=2), weight, noise, x)
    torch.testing.assert_close(found, 2 * x[:, :1] + x @ dense)
    for shape in ((2, 4), (4,), (1,)):
        added = torch.randn(N_MEMBERS, *shape)
        found, mode = run(lambda x, added: torch.addmm(added, x, weight), weight, noise, x, added)
        torch.testing.assert_close(found, added.view(N_MEMBERS, -1, shape[-1]) + x @ dense)
        assert not mode.by_tensor


def test_embeddings_keep_their_options(weight: Tensor, draw: Draw) -> None:
    noise = draw([weight], N_MEMBERS)
    ids = torch.tensor([[0, 3], [2, 2], [1, 0]])
    dense = noise[0].added_to(weight)
    expected = torch.stack([F.embedding(i, w) for i, w in zip(ids, dense, strict=True)])
    found, mode = run(lambda ids: F.embedding(ids, weight, padding_idx=0), weight, noise, ids)
    torch.testing.assert_close(found, expected)
    assert not mode.by_tensor


def test_embeddings_that_shorten_their_rows_do_so_with_each_members(weight: Tensor, draw: Draw) -> None:
    noise = draw([weight], N_MEMBERS)
    dense, ids = noise[0].added_to(weight), torch.tensor([1, 3])
    found, _ = run(lambda: F.embedding(ids, weight, max_norm=0.1), weight, noise)
    torch.testing.assert_close(found, torch.stack([F.embedding(ids, own, max_norm=0.1) for own in dense.unbind()]))


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.add_(1),
        lambda w: w.data.mul_(2),
        lambda w: w.t().zero_(),
        lambda w: w.__setitem__(0, 0.0),
        lambda w: w.__iadd__(1),
        lambda w: torch.zeros(4, 4).copy_(w) if torch.neg(w, out=w) is None else w,
        lambda w: setattr(w, "data", torch.zeros(4, 4)),
    ],
)
def test_a_change_of_a_parameter_is_refused(change: Callable[[Tensor], object], weight: Tensor, draw: Draw) -> None:
    def function() -> Tensor:
        change(weight)
        return weight.sum()

    before = weight.clone()
    with pytest.raises(Refused, match=r"changes a parameter in place \(.*\), .*; compute a new tensor"):
        run(function, weight, draw([weight], N_MEMBERS))
    assert torch.equal(weight, before)


def test_a_gradient_may_be_cleared(weight: Tensor, draw: Draw) -> None:
    def function() -> Tensor:
        weight.grad = None
        return weight.sum()

    found, _ = run(function, weight, draw([weight], N_MEMBERS))
    assert found.shape == (N_MEMBERS,)
