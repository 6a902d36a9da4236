"""A trial of a function's first members: sequentially, which is right, and batched, which should be faster."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import torch
from torch import Tensor

from fedlearn.tasks.torch.members.agreement import agree
from fedlearn.tasks.torch.members.batched import batched
from fedlearn.tasks.torch.members.mode import Perturbed, name_of
from fedlearn.tasks.torch.members.noise import Noise, number_of_members, of_members
from fedlearn.tasks.torch.members.refusals import (
    Refused,
    refuse_memory,
    refuse_no_result,
    refuse_one_loss,
    refuse_unread,
)
from fedlearn.tasks.torch.members.sequential import sequential
from fedlearn.tasks.torch.members.watch import ParameterWatch, refuse_changed, states
from fedlearn.tasks.torch.members.without_compiler import without_compiler
from fedlearn.tasks.torch.seeds import random_states
from fedlearn.tasks.torch.trees import Tree, between, leaves, pick, stacked

LOUDER = (1.0, -1.0, 1e2, -1e2, 1e4, -1e4)
"""Factors by which the noise of a parameter without effect is raised before the parameter counts as unread."""


class Subject(msgspec.Struct, frozen=True, eq=False):
    """A function and the members that run it."""

    function: Callable[..., Tree]
    parameters: Mapping[str, Tensor]
    weights: Sequence[Tensor]
    """The unperturbed tensors, in memory of their own."""
    noise: Sequence[Noise]
    shared: Sequence[Tree]
    """Arguments that are the same for all these members."""
    own: Sequence[Tree]
    """Arguments that differ between members, [members, ...]."""
    seeded: Callable[[], AbstractContextManager[None]]
    """A context in which the function draws the same random numbers for every member of the group."""

    @property
    def device(self) -> torch.device:
        """Device on which members run."""
        return self.weights[0].device

    def sequential(self) -> list[Tree]:
        """The results of all members, run sequentially."""
        parameters = list(self.parameters.values())
        return sequential(
            self.function, parameters, self.weights, self.noise, self.shared, self.own, seeded=self.seeded
        )

    def batched(self, seen: Callable[[Perturbed], object] | None = None) -> Tree:
        """The results of all members, run batched."""
        parameters = list(self.parameters.values())
        with self.seeded():
            return batched(self.function, parameters, self.noise, self.shared, self.own, seen=seen)

    def batched_or_sequential(self) -> Tree:
        """The results of all members, batched, or sequential if they can't be batched.

        Raises:
            Refused: the function does something by which members cannot be compared.
        """
        try:
            return self.batched()
        except Refused:
            raise
        except Exception:  # Whatever vmap refuses, or the function itself: that is raised again.
            return stacked(self.sequential())

    def member(self, member: int) -> "Subject":
        """The same function with one of the members."""
        noise = of_members(self.noise, member, member + 1)
        return msgspec.structs.replace(self, noise=noise, own=between(self.own, member, member + 1))


class TrialOutcome(msgspec.Struct, frozen=True, eq=False):
    """The outcome of a trial."""

    results: Any
    """Results of the members that were tried, [members, ...]."""
    sequential_s: float
    """Seconds per member of the sequential run."""
    draws: bool
    """Whether the function draws random numbers."""
    refusal: str = ""
    """The reason why members can't be batched; empty if they can."""
    batched_s: float = 0.0
    """Seconds per member of the batched run."""
    by_rule: tuple[str, ...] = ()
    """Operations that rules computed, with shared unperturbed weights or otherwise for all members at once."""
    by_tensor: tuple[str, ...] = ()
    """Operations that needed members' own matrices."""
    own_numbers: int = 0
    """Number of elements of the tensors that one member has of its own."""
    losses: tuple[tuple[float, float], ...] = ()
    """Losses of two members, (sequential, batched) each, if the function gives a number."""


@without_compiler()
def hold_trial(
    subject: Subject,
    n_tried: int,
    frozen: Callable[[], Mapping[str, Tensor]],
    clock: Callable[[], float],
    *,
    keepers: Callable[[], Mapping[str, str]] = dict,
    elsewhere: Callable[[], Iterable[Sequence[Tree]]] = tuple,
    is_first: bool = True,
) -> TrialOutcome:
    """Runs `n_tried` of the subject's members sequentially and batched; the `frozen` tensors must not change.

    Tensors that the very first call makes and keeps, such as a buffer of positions, are no change. `keepers` gives an
    attribute that keeps tensors, by module; `elsewhere` gives arguments of other groups, which may read parameters that
    this one does not, such as those of experts that few rows meet. In a trial that is not the function's first, losses
    may be alike: a share of right answers may be the same for all members on some rows.

    Raises:
        Refused: the function does something by which members cannot be compared, or reads no parameter.
        Exception: the function itself raises for a single member.
    """
    plain, draws, hidden = _look(subject, keepers, elsewhere, may_be_unheard=not is_first)
    before = states(frozen())
    each, times_s = [], []
    for member in range(n_tried):
        started = clock()
        each += subject.member(member).sequential()
        times_s.append(clock() - started)
    refuse_changed(before, states(frozen()))
    results = stacked(each)
    if is_first and _is_one_loss(results) and not any(_is_heard(subject, name, plain) for name in subject.parameters):
        refuse_one_loss(results[0].item())
    verdict = TrialOutcome(results, min(times_s), draws)
    if hidden:
        why = f"{', '.join(hidden)}: read in code that PyTorch does not show"
        return msgspec.structs.replace(verdict, refusal=why)
    return _with_batched(subject, verdict, n_tried, clock)


def _with_batched(subject: Subject, verdict: TrialOutcome, n_tried: int, clock: Callable[[], float]) -> TrialOutcome:
    modes: list[Perturbed] = []
    try:
        results = subject.batched(modes.append)
        started = clock()
        subject.batched()
        batched_s = (clock() - started) / n_tried
    except Refused:
        raise
    except Exception as error:  # whatever vmap refuses
        return msgspec.structs.replace(verdict, refusal=first_line(error))
    losses: tuple[tuple[float, float], ...] = ()
    if isinstance(verdict.results, Tensor) and verdict.results.dim() == 1:
        losses = tuple(zip(verdict.results[:2].tolist(), results[:2].tolist(), strict=True))
    return msgspec.structs.replace(
        verdict,
        refusal="" if agree(verdict.results, results) else "members gave other results at once than one by one",
        batched_s=batched_s,
        by_rule=tuple(sorted({name_of(function) for function in modes[0].by_rule})),
        by_tensor=tuple(sorted({name_of(function) for function in modes[0].by_tensor})),
        own_numbers=modes[0].own_numbers,
        losses=losses,
    )


def first_line(error: Exception) -> str:
    """The message of an error in one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _look(
    subject: Subject,
    keepers: Callable[[], Mapping[str, str]],
    elsewhere: Callable[[], Iterable[Sequence[Tree]]],
    *,
    may_be_unheard: bool,
) -> tuple[Tree, bool, list[str]]:
    """The result of a plain run, whether it draws random numbers, and the parameters whose use PyTorch does not show.

    A second run must give the same result and read the same parameters as the first. Noise on a parameter that no
    function was seen to read, here or elsewhere, must change the result, unless it `may_be_unheard`.
    """
    first = subject.member(0)
    given = {str(i): leaf for i, leaf in enumerate(leaves((first.shared, first.own))) if isinstance(leaf, Tensor)}
    before = states(given)
    plain, draws, unmet_at_first = _run_plainly(first)
    if states(given) != before:
        raise Refused(
            "the model or its loss changes the data it is given, and other members are given the same; work on a copy"
        )
    again, _, unmet = _run_plainly(first)
    if not draws and not agree(stacked([plain]), stacked([again])):
        refuse_memory(plain, again)
    unread = [name for name in unmet if may_be_unheard or not _is_heard(subject, name, plain)]
    left = _still_unread(first, unread, elsewhere)
    if left and not may_be_unheard:
        refuse_unread(left, [name for name in left if name not in unmet_at_first], keepers())
    return plain, draws, [name for name in unmet if name in left or name not in unread]


def _still_unread(
    first: Subject, unread: Sequence[str], elsewhere: Callable[[], Iterable[Sequence[Tree]]]
) -> list[str]:
    """The parameters among some that no other group was seen to read, either; nothing is run where there are none."""
    left = list(unread)
    for shared in elsewhere() if left else ():
        _, _, unmet = _run_plainly(msgspec.structs.replace(first, shared=shared))
        if not (left := [name for name in left if name in unmet]):
            break
    return left


def _run_plainly(first: Subject) -> tuple[Tree, bool, list[str]]:
    """The unperturbed result, whether random numbers were drawn, and the parameters that no function was seen to
    read."""
    with first.seeded():
        random_before = random_states(first.device)
        with ParameterWatch(first.parameters) as watch:
            result = first.function(*first.shared, *pick(first.own, 0))
        draws = random_before != random_states(first.device)
    refuse_no_result(result)
    return result, draws, [name for name, parameter in first.parameters.items() if id(parameter) in watch.unmet]


def _is_one_loss(results: Tree) -> bool:
    """Whether all members gave the same finite loss."""
    is_loss = isinstance(results, Tensor) and results.dim() == 1 and results.is_floating_point() and len(results) > 1
    return is_loss and bool(results.isfinite().all()) and bool((results == results[0]).all())


def _is_heard(subject: Subject, name: str, plain: Tree) -> bool:
    """Whether noise on a parameter changes the result of the first member."""
    index = list(subject.parameters).index(name)
    member = msgspec.structs.replace(
        subject.member(0), parameters={name: subject.parameters[name]}, weights=[subject.weights[index]]
    )
    # A loss may be coarse, such as a share of right answers, so the noise of several members is tried and made larger.
    for factor in LOUDER:
        louder = subject.noise[index].times(factor)
        for other in range(number_of_members(subject.noise)):
            noise = of_members([louder], other, other + 1)
            (heard,) = msgspec.structs.replace(member, noise=noise).sequential()
            same = zip(leaves(plain), leaves(heard), strict=True)
            if not all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in same):
                return True
    return False
