import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedlearn.tasks.torch.members.kept import keepers
from fedlearn.tasks.torch.members.noise import Noise
from fedlearn.tasks.torch.members.refusals import Refused
from fedlearn.tasks.torch.members.trial import Subject, TrialOutcome, hold_trial

Draw = Callable[..., list[Noise]]
X = torch.linspace(-1, 1, 12).view(3, 4)


def traced(module: nn.Module, n_inputs: int) -> nn.Module:
    """The module as a script, whose operations PyTorch shows nobody."""
    trace: Callable[..., nn.Module] = torch.jit.trace
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return trace(module, torch.zeros(2, n_inputs))


def clock() -> Callable[[], float]:
    """Goes on by a second with every look at it."""
    ticks = count()
    return lambda: float(next(ticks))


@torch.no_grad()
def tried(
    model: nn.Module,
    function: Callable[..., Any],
    draw: Draw,
    *shared: Tensor,
    own: tuple[Tensor, ...] = (),
    elsewhere: Callable[[], Iterable[Sequence[Tensor]]] = tuple,
    is_first: bool = True,
) -> TrialOutcome:
    torch.manual_seed(0)
    parameters = dict(model.named_parameters())
    weights = [parameter.detach().clone() for parameter in parameters.values()]
    noise = draw(list(parameters.values()), 4)
    subject = Subject(function, parameters, weights, noise, shared, own, nullcontext)
    buffers, kept = lambda: dict(model.named_buffers()), lambda: keepers(model)
    return hold_trial(subject, 4, buffers, clock(), keepers=kept, elsewhere=elsewhere, is_first=is_first)


def test_both_ways_are_timed_and_their_losses_shown(draw: Draw) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Bilinear(3, 3, 2))

    def function(x: Tensor) -> Tensor:
        y = model[0](x)
        loss: Tensor = model[1](y, y).mean()
        return loss

    verdict = tried(model, function, draw, X)
    assert (verdict.sequential_s, verdict.batched_s) == (1.0, 0.25)
    assert verdict.refusal == ""
    assert verdict.by_rule == ("linear",)
    assert verdict.by_tensor == ("bilinear",)
    assert verdict.own_numbers == 20
    assert not verdict.draws
    assert len(verdict.losses) == 2
    for member, (alone, at_once) in enumerate(verdict.losses):
        assert alone == verdict.results[member].item()
        assert at_once == pytest.approx(alone, abs=1e-6)


def test_a_branch_on_a_value_leaves_members_to_be_run_one_by_one(draw: Draw) -> None:
    model = nn.Linear(4, 3)
    verdict = tried(model, lambda x: model(x).mean() if model(x).sum() > 0 else model(x).std(), draw, X)
    assert verdict.refusal.startswith("RuntimeError: vmap: It looks like")
    assert verdict.results.shape == (4,)


@pytest.mark.parametrize(
    "give", [lambda loss: loss.item(), lambda loss: (loss, 1.0), lambda loss: np.float64(loss.item())]
)
def test_numbers_that_are_no_tensors_are_results_too(give: Callable[[Tensor], Any], draw: Draw) -> None:
    model = nn.Linear(4, 3)
    verdict = tried(model, lambda x: give(model(x).mean()), draw, X)
    assert verdict.refusal
    parts = verdict.results if isinstance(verdict.results, tuple) else (verdict.results,)
    assert [part.shape for part in parts] == [(4,)] * len(parts)


def test_parameters_in_scripts_are_heard_one_by_one(draw: Draw) -> None:
    model = nn.Sequential(nn.Linear(4, 3), traced(nn.Linear(3, 3), 3))
    verdict = tried(model, lambda x: model(x).pow(2).mean(), draw, X)
    assert verdict.refusal == "1.weight, 1.bias: read in code that PyTorch does not show"
    assert verdict.results.std() > 0


def test_a_quiet_parameter_is_heard_when_it_is_louder(draw: Draw) -> None:
    script = traced(nn.Linear(4, 3), 4)

    def wrong(x: Tensor) -> Tensor:
        answer: Tensor = script(x)
        return (answer > 0).float().mean()

    assert "PyTorch does not show" in tried(script, wrong, draw, X / 8).refusal


def test_a_parameter_that_nothing_reads_is_an_error(draw: Draw) -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 3), "idle": nn.Linear(2, 2)})
    message = r"never read idle\.weight, idle\.bias, .* train=lambda name: 'idle\.weight' not in name"
    with pytest.raises(Refused, match=message):
        tried(model, lambda x: model["used"](x).mean(), draw, X)


def experts(*names: str) -> tuple[nn.ModuleDict, Callable[[Tensor], Tensor]]:
    """Layers with these names, and a loss that runs `a` where the first number is positive, else `b`."""
    layers = nn.ModuleDict({name: nn.Linear(4, 3) for name in names})

    def loss(x: Tensor) -> Tensor:
        found: Tensor = layers["a" if x[0, 0] > 0 else "b"](x)
        return found.square().mean()

    return layers, loss


@pytest.mark.parametrize("is_first", [True, False])
def test_a_parameter_that_other_rows_read_is_allowed(is_first: bool, draw: Draw) -> None:
    n_asked = 0

    def elsewhere() -> Iterable[Sequence[Tensor]]:
        nonlocal n_asked
        for x in (X, X.abs(), -X, X):  # `b` is met by the first of them, and no `c` is there to look for
            n_asked += 1
            yield (x,)

    layers, loss = experts("a", "b")
    outcome = tried(layers, loss, draw, X.abs() + 1.0, elsewhere=elsewhere, is_first=is_first)
    assert "not show" not in outcome.refusal
    assert n_asked == 1


def test_what_neither_these_rows_nor_others_read_is_an_error(draw: Draw) -> None:
    layers, loss = experts("a", "b", "c")
    with pytest.raises(Refused, match=r"never read c\.weight, c\.bias, so"):
        tried(layers, loss, draw, X.abs() + 1.0, elsewhere=lambda: [(X,)])
    with pytest.raises(Refused, match=r"never read b\.weight, b\.bias, c\.weight and 1 more"):
        tried(layers, loss, draw, X.abs() + 1.0, elsewhere=lambda: [(X + 5.0,)])


def test_no_other_rows_are_asked_where_these_read_everything(draw: Draw) -> None:
    def elsewhere() -> Iterable[Sequence[Tensor]]:
        raise AssertionError("asked")

    layers, loss = experts("a")
    tried(layers, loss, draw, X.abs() + 1.0, elsewhere=elsewhere)


def test_a_change_of_a_buffer_is_refused(draw: Draw) -> None:
    model = nn.Linear(4, 3)
    model.register_buffer("calls", torch.zeros(()))

    def function(x: Tensor) -> Tensor:
        model.get_buffer("calls").add_(1)
        loss: Tensor = model(x).mean()
        return loss

    with pytest.raises(Refused, match="changes its calls,"):
        tried(model, function, draw, X)


def test_a_buffer_that_the_first_call_makes_is_no_change(draw: Draw) -> None:
    model, made = nn.Linear(4, 3), list[str]()

    def function(x: Tensor) -> Tensor:
        if "positions" not in made:
            made.append("positions")
            model.register_buffer("positions", torch.arange(3.0), persistent=False)
        loss: Tensor = (model(x) * model.get_buffer("positions")).mean()
        return loss

    assert tried(model, function, draw, X).refusal == ""


class Caching(nn.Module):
    """Keeps what it makes of its weight in the first call, as some models do in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Parameter(torch.ones(4)), nn.Linear(4, 1)
        self.kept: dict[str, list[Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        if "cpu" not in self.kept:
            self.kept["cpu"] = [self.table * 2.0]
        result: Tensor = self.out(x * self.kept["cpu"][0]).mean()
        return result


CACHE = (
    r"the model keeps what it made of 0\.table in an earlier call in 'kept' of 0, so that noise there has no effect; "
    r"let it be made anew in every call, or leave it out with train=, such as train=lambda name: 'table' not in name"
)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_tensor_made_of_parameters_and_kept_is_refused(is_new: bool, draw: Draw) -> None:
    model = nn.Sequential(Caching())
    if not is_new:
        model(X)
    with pytest.raises(Refused, match=CACHE):
        tried(model, model, draw, X)


def test_a_kept_tensor_is_named_only_where_it_may_matter(draw: Draw) -> None:
    model = nn.Sequential(Caching())
    model[0].register_module("idle", nn.Linear(2, 2))
    model[0].register_forward_pre_hook(lambda module, _: module.kept.clear())
    perhaps = r"never read 0\.idle\.weight, 0\.idle\.bias, so that noise there .*; or if 'kept' of 0 was made of it"
    with pytest.raises(Refused, match=perhaps):
        tried(model, model, draw, X)


def test_one_loss_for_all_members_is_refused(draw: Draw) -> None:
    model = nn.Linear(4, 3)
    with pytest.raises(Refused, match=r"all members have the loss 0\.5, however large the noise is: .* leaves its res"):
        tried(model, lambda x: model(x).mean() * 0 + 0.5, draw, X)


def test_a_loss_that_is_coarse_is_not(draw: Draw) -> None:
    model = nn.Linear(4, 3)
    assert tried(model, lambda x: (model(x) > -5).float().mean(), draw, X).refusal == ""


def test_a_counter_that_the_loss_depends_on_is_refused(draw: Draw) -> None:
    model, calls = nn.Linear(4, 3), count()
    with pytest.raises(Refused, match=r"gave -?0, and then \S+ for the same weights and rows: .* such as a counter"):
        tried(model, lambda x: model(x).mean() * next(calls), draw, X)


def test_a_function_that_gives_nothing_is_refused(draw: Draw) -> None:
    model = nn.Linear(4, 3)
    with pytest.raises(Refused, match="expected a number, got None; let the function return the loss"):
        tried(model, lambda _: None, draw, X)


def test_errors_of_the_function_are_not_hidden(draw: Draw) -> None:
    model = nn.Linear(5, 3)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        tried(model, lambda x: model(x).mean(), draw, X)


def test_refusals_within_a_function_reach_the_user(draw: Draw) -> None:
    model = nn.Linear(4, 3)
    averages = torch.zeros(3), torch.ones(3)
    with pytest.raises(Refused, match="batch_norm with training=True moves its running averages"):
        tried(model, lambda x: nn.functional.batch_norm(model(x), *averages, training=True).mean(), draw, X)


def test_a_change_of_what_members_are_given_is_refused(draw: Draw) -> None:
    model = nn.Linear(4, 3)
    for shared, own in (((X.clone(),), ()), ((), (X.expand(4, 3, 4).clone(),))):
        with pytest.raises(Refused, match=r"changes the data it is given, .* work on a copy"):
            tried(model, lambda x: model(x.mul_(0.5)).mean(), draw, *shared, own=own)


def test_another_result_at_once_is_never_taken(draw: Draw) -> None:
    model = nn.Linear(4, 3)

    def function(x: Tensor) -> Tensor:
        # Copies made behind PyTorch's back are not the members' own.
        is_alone = torch._C._functorch.maybe_current_level() is None
        loss: Tensor = model(x).mean() + (np.asarray(model.weight.detach()).sum() if is_alone else 0.0)
        return loss

    assert tried(model, function, draw, X).refusal == "members gave other results at once than one by one"


def test_random_draws_are_noticed(draw: Draw) -> None:
    model = nn.Linear(4, 3)
    assert tried(model, lambda x: model(x + torch.rand(4)).mean(), draw, X).draws


def test_each_member_has_arguments_of_its_own(draw: Draw) -> None:
    model = nn.Linear(4, 3)
    own = torch.arange(4.0)
    verdict = tried(model, lambda x, y: model(x).mean() * 0 + y, draw, X, own=(own,))
    assert torch.equal(verdict.results, own)
    scripted = traced(nn.Linear(4, 3), 4)
    verdict = tried(scripted, lambda x, y: scripted(x).mean() + y, draw, X, own=(own,))
    assert "PyTorch does not show" in verdict.refusal
