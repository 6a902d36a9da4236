"""The first members of a function are tried both ways: what is right, and what its operations come to."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import torch
from torch import Tensor

from fedlearn.tasks.torch.agreement import agree
from fedlearn.tasks.torch.mode import Perturbed, name_of
from fedlearn.tasks.torch.noise import Noise, number_of_members, of_members
from fedlearn.tasks.torch.one_by_one import one_by_one
from fedlearn.tasks.torch.refusals import Refused
from fedlearn.tasks.torch.seeds import random_states
from fedlearn.tasks.torch.together import together
from fedlearn.tasks.torch.trees import Tree, between, leaves, pick, stacked
from fedlearn.tasks.torch.watch import Watch, refuse_changed, states

LOUDER = (1.0, 1e2, 1e4)
"""Factors on the noise of a parameter that is not heard of, before it is called one that nothing reads."""


class Subject(msgspec.Struct, frozen=True, eq=False):
    """A function, and some members that run it."""

    function: Callable[..., Tree]
    parameters: Mapping[str, Tensor]
    weights: Sequence[Tensor]
    """Unperturbed, in memory of their own."""
    noise: Sequence[Noise]
    shared: Sequence[Tree]
    """Arguments that are the same for all these members."""
    own: Sequence[Tree]
    """Arguments of which each member has its own, [members, ...]."""
    seeded: Callable[[], AbstractContextManager[None]]
    """Within it, what the function draws at random is what every member of the group draws."""

    def alone(self) -> list[Tree]:
        """What each member gives, one by one."""
        parameters = list(self.parameters.values())
        return one_by_one(
            self.function, parameters, self.weights, self.noise, self.shared, self.own, seeded=self.seeded
        )

    def together(self, seen: Callable[[Perturbed], object] | None = None) -> Tree:
        """What all of the members give, at once."""
        parameters = list(self.parameters.values())
        with self.seeded():
            return together(self.function, parameters, self.noise, self.shared, self.own, seen=seen)

    def together_or_alone(self) -> Tree:
        """What all of the members give, at once; one by one where they cannot be run at once.

        Raises:
            Refused: the function does what members can't be compared by.
        """
        try:
            return self.together()
        except Refused:
            raise
        except Exception:  # Whatever vmap refuses, or the function itself: that is raised again.
            return stacked(self.alone())

    def member(self, member: int) -> "Subject":
        """The same with one of the members."""
        noise = of_members(self.noise, member, member + 1)
        return msgspec.structs.replace(self, noise=noise, own=between(self.own, member, member + 1))


class Verdict(msgspec.Struct, frozen=True, eq=False):
    """What a trial found."""

    results: Any
    """Of the members tried, [members, ...]."""
    alone_s: float
    """Seconds a member, one by one."""
    draws: bool
    """Whether the function draws at random."""
    refusal: str = ""
    """Why members can't run at once; empty where they can."""
    together_s: float = 0.0
    """Seconds a member, at once."""
    by_rule: tuple[str, ...] = ()
    """Operations that share the unperturbed weights, and others that are done for all members at once."""
    by_tensor: tuple[str, ...] = ()
    """Operations that members' own matrices are made for."""
    own_numbers: int = 0
    """Numbers of one member's own tensors."""
    losses: tuple[tuple[float, float], ...] = ()
    """Of two members, one by one and at once, where the function gives a number."""


def hold_trial(
    subject: Subject, n_tried: int, frozen: Callable[[], Mapping[str, Tensor]], clock: Callable[[], float]
) -> Verdict:
    """Runs the subject's members, `n_tried` of them, both ways; `frozen` is what they must leave as it is.

    Raises:
        Refused: the function does what members can't be compared by, or nothing reads a parameter.
        Exception: whatever the function raises for one member.
    """
    before = states(frozen())
    hidden, draws = _look(subject)
    each, times_s = [], []
    for member in range(n_tried):
        started = clock()
        each += subject.member(member).alone()
        times_s.append(clock() - started)
    refuse_changed(before, states(frozen()))
    verdict = Verdict(stacked(each), min(times_s), draws)
    if hidden:
        why = f"{', '.join(hidden)}: read in code that PyTorch does not show"
        return msgspec.structs.replace(verdict, refusal=why)
    return _with_together(subject, verdict, n_tried, clock)


def _with_together(subject: Subject, verdict: Verdict, n_tried: int, clock: Callable[[], float]) -> Verdict:
    modes: list[Perturbed] = []
    try:
        results = subject.together(modes.append)
        started = clock()
        subject.together()
        together_s = (clock() - started) / n_tried
    except Refused:
        raise
    except Exception as error:  # Whatever vmap refuses.
        return msgspec.structs.replace(verdict, refusal=first_line(error))
    losses: tuple[tuple[float, float], ...] = ()
    if isinstance(verdict.results, Tensor) and verdict.results.dim() == 1:
        losses = tuple(zip(verdict.results[:2].tolist(), results[:2].tolist(), strict=True))
    return msgspec.structs.replace(
        verdict,
        refusal="" if agree(verdict.results, results) else "members gave other results at once than one by one",
        together_s=together_s,
        by_rule=tuple(sorted({name_of(function) for function in modes[0].by_rule})),
        by_tensor=tuple(sorted({name_of(function) for function in modes[0].by_tensor})),
        own_numbers=modes[0].own_numbers,
        losses=losses,
    )


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _look(subject: Subject) -> tuple[list[str], bool]:
    """Names of parameters that are read where PyTorch does not show it, and whether the function draws at random."""
    first = subject.member(0)
    given = {str(i): leaf for i, leaf in enumerate(leaves((first.shared, first.own))) if isinstance(leaf, Tensor)}
    before = states(given)
    with subject.seeded():
        random_before = random_states(first.weights[0].device)
        with Watch(list(subject.parameters.values())) as watch:
            plain = first.function(*first.shared, *pick(first.own, 0))
        draws = not all(map(torch.equal, random_before, random_states(first.weights[0].device)))
    if states(given) != before:
        raise Refused(
            "the model or its loss changes the data it is given, and other members are given the same; work on a copy"
        )
    unmet = [name for name, parameter in subject.parameters.items() if id(parameter) in watch.unmet]
    unread = [name for name in unmet if not _is_heard(subject, name, plain)]
    if unread:
        raise Refused(
            f"the model and its loss never read {', '.join(unread)}, so that noise there has no effect; leave it out "
            f"with train=, such as train=lambda name: {unread[0]!r} not in name"
        )
    return unmet, draws


def _is_heard(subject: Subject, name: str, plain: Tree) -> bool:
    """Whether noise on a parameter changes anything at all in what the first member gives."""
    index = list(subject.parameters).index(name)
    member = msgspec.structs.replace(
        subject.member(0), parameters={name: subject.parameters[name]}, weights=[subject.weights[index]]
    )
    # A loss may be coarse, such as a share of right answers: noise of several members, ever louder.
    for factor in LOUDER:
        louder = subject.noise[index].times(factor)
        for other in range(number_of_members(subject.noise)):
            noise = of_members([louder], other, other + 1)
            (heard,) = msgspec.structs.replace(member, noise=noise).alone()
            same = zip(leaves(plain), leaves(heard), strict=True)
            if not all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in same):
                return True
    return False
