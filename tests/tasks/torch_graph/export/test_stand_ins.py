from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from fedlearn.tasks.torch_graph.export.stand_ins import ctc_loss, gumbel_softmax  # noqa: E402

SCORES = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(1))
TARGETS = torch.tensor([[1, 1, 1], [3, 2, 1], [2, 2, 3]])


def of_texts(loss: Any, target_lengths: list[int], **how: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401 (either function)
    """The losses of three texts, whose third is too long for its steps where it has three letters, and a gradient."""
    scores = SCORES.clone().requires_grad_(True)
    lengths = torch.tensor([5, 4, 3]), torch.tensor(target_lengths)
    losses = loss(scores.log_softmax(-1), TARGETS, *lengths, reduction="none", **how)
    losses[losses.isfinite()].sum().backward()
    assert scores.grad is not None
    return losses.detach(), scores.grad


@pytest.mark.parametrize("target_lengths", [[2, 3, 1], [3, 1, 0], [1, 2, 3]])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_has_pytorchs_losses_and_gradients(target_lengths: list[int], zero_infinity: bool) -> None:
    found, gradient = of_texts(ctc_loss, target_lengths, zero_infinity=zero_infinity)
    expected, its = of_texts(F.ctc_loss, target_lengths, zero_infinity=zero_infinity)
    torch.testing.assert_close(found, expected)
    are_finite = expected.isfinite()  # PyTorch's gradient of the others is none
    torch.testing.assert_close(gradient[:, are_finite], its[:, are_finite], rtol=1e-4, atol=1e-6)
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 0.1
    if target_lengths[2] == 3:
        assert float(found[2]) == (0.0 if zero_infinity else float("inf"))


@pytest.mark.parametrize("hard", [False, True])
def test_gumbel_softmax_chooses_as_often_as_pytorchs(hard: bool) -> None:
    logits = torch.tensor([0.0, 1.0, -1.0]).expand(20_000, 3)
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        found, expected = (function(logits, tau=0.5, hard=hard) for function in (gumbel_softmax, F.gumbel_softmax))
    torch.testing.assert_close(found.sum(1), torch.ones(20_000))
    torch.testing.assert_close(found.mean(0), expected.mean(0), rtol=0.0, atol=0.02)
    torch.testing.assert_close(found.std(0), expected.std(0), rtol=0.0, atol=0.02)
    assert set(found.ravel().tolist()) == {0.0, 1.0} or not hard


def test_a_hard_choice_has_the_gradient_of_the_soft_one() -> None:
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(2), requires_grad=True)
    weights = torch.arange(5.0)
    gradients: list[Tensor] = []
    for function in (gumbel_softmax, gumbel_softmax):
        with torch.random.fork_rng([]):
            torch.manual_seed(3)
            chosen = function(logits.T, hard=len(gradients) == 0, dim=0)
        gradients.append(torch.autograd.grad((chosen.T * weights).sum(), logits)[0])
    torch.testing.assert_close(gradients[0], gradients[1])
    assert gradients[0].abs().max() > 0.1
