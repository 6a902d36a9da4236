from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.tasks.torch.members.batched import batched
from fedlearn.tasks.torch.members.noise import Noise
from fedlearn.tasks.torch.rules.matrices import RULES

Draw = Callable[..., list[Noise]]
Function = Callable[[Tensor, Tensor], Tensor]

N_MEMBERS = 5

USES: dict[str, Function] = {
    "matrix by matrix": lambda x, weight: x @ weight.t(),
    "transposed by another name": lambda x, weight: torch.matmul(x, weight.mT),
    "transposed by dimensions": lambda x, weight: x.mm(torch.transpose(weight, -1, 0)),
    "not transposed by equal dimensions": lambda x, weight: x.mm(torch.transpose(weight, 0, 0).t()),
    "from the left": lambda x, weight: weight @ x.t(),
    "from the left, by a vector": lambda x, weight: weight.mv(x[0]),
    "of a batch": lambda x, weight: torch.stack([x, 2 * x]) @ weight.t(),
    "by itself": lambda _, weight: weight @ weight.t(),
    "added to a vector": lambda x, weight: torch.addmm(x[0, :3], x, weight.t()),
    "added to a matrix": lambda x, weight: torch.addmm(x[:, :3], x, weight.t()),
    "added, scaled": lambda x, weight: torch.addmm(x[0, :3], x, weight.t(), beta=0.5, alpha=2.0),
    "of another type and back": lambda x, weight: x @ weight.to(torch.float32).contiguous().detach().t(),
    "of doubles": lambda x, weight: (x.double() @ weight.double().t()).float(),
    "looked up by all alike": lambda _, weight: F.embedding(torch.tensor([[2, 0], [1, 1]]), weight),
    "looked up by each": lambda x, weight: F.embedding((x[:, :2] > 0).long(), weight),
    "looked up, cut to a length": lambda x, weight: F.embedding((x[:, 0] > 0).long(), weight.clone(), max_norm=0.5),
    "not as a matrix": lambda x, weight: (x[0] * weight).sum(1),
}


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("use", USES)
def test_each_member_has_what_its_own_matrix_gives(use: str, rank: int, draw: Draw) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(3, 6), torch.randn(N_MEMBERS, 4, 6)
    noise = draw([weight], N_MEMBERS, rank, sigma=0.5)
    found = batched(lambda x: USES[use](x, weight), [weight], noise, own=(x,))
    for member, matrix in enumerate(noise[0].added_to(weight)):
        torch.testing.assert_close(found[member], USES[use](x[member], matrix))


def test_names_of_one_operation_have_one_rule() -> None:
    assert len({RULES[name] for name in (torch.matmul, torch.mm, Tensor.mv, Tensor.__matmul__)}) == 1
    assert len({RULES[name] for name in (torch.t, Tensor.transpose, torch.adjoint)}) == 1
