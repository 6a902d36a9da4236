"""The members of some groups around one module, ready to run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import final

import numpy as np
import torch
from torch import Tensor

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.torch.members.execution_plans import N_TRIED, ExecutionPlan, ExecutionPlans
from fedlearn.tasks.torch.members.noise import Noise, number_of_members, of_members
from fedlearn.tasks.torch.members.refusals import Refused, refuse_randomness
from fedlearn.tasks.torch.members.trial import Subject
from fedlearn.tasks.torch.seeds import seeded
from fedlearn.tasks.torch.trees import Tree, as_tensors, between, joined, pick, repeated, stacked


@final
class TorchMembers:
    """An implementation of `fedlearn.tasks.task.Members` whose functions take and give tensors."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        weights: Sequence[Tensor],
        noise: Sequence[Noise],
        *,
        n_groups: int,
        plans: ExecutionPlans,
    ) -> None:
        """`parameters` have the values of `weights`, which are in memory of their own."""
        self.n_groups = n_groups
        self.group_size = number_of_members(noise) // n_groups
        self._parameters, self._weights, self._noise, self._plans = parameters, list(weights), list(noise), plans
        self._device = self._weights[0].device

    def __len__(self) -> int:
        return self.n_groups * self.group_size

    def __call__(
        self, function: Callable[..., Tree], *grouped: Tree, own: Sequence[Tree] = (), seeds: Sequence[int] = ()
    ) -> Tree:
        """Calls `function(*grouped, *own)` for each member; results are tensors [members, ...] in its own structure.

        Arrays and tensors in `grouped` are [groups, ...], and a member is given its group's entry; those in `own` are
        [members, ...]. They may lie in dictionaries, lists and tuples. With `seeds`, one per group, what the function
        draws from PyTorch's generators is the same for all members of a group, on every machine.

        Raises:
            Refused: the function does something by which members cannot be compared, such as drawing random numbers
                without `seeds`, or reads no parameter.
        """
        grouped, own = as_tensors((grouped, tuple(own)), self._device)
        subject = partial(self._subject, function, grouped, own, seeds)
        plan = self._plans.find(function)
        results: list[Tree] = []
        first = 0
        if plan is None:
            first = min(N_TRIED, self.group_size)
            plan = self._plans.hold_trial(subject(0, first), first)
            if plan.verdict.draws and not seeds:
                refuse_randomness(plan.name, "pass the seeds of the groups (seeds=batch.seeds), or call model.eval()")
            results.append(plan.verdict.results)
        while first < len(self):
            end = self._end_of_piece(first, plan)
            results.append(self._run(subject(first, end), plan))
            first = end
        return joined(results)

    def each(self) -> Iterator[Mapping[str, Float32Array]]:
        for member in range(len(self)):
            noises = of_members(self._noise, member, member + 1)
            named = zip(self._parameters, self._weights, noises, strict=True)
            yield {name: np.asarray(noise.added_to(tensor)[0].cpu()) for name, tensor, noise in named}

    def _end_of_piece(self, first: int, plan: ExecutionPlan) -> int:
        """The end of the next piece, which is part of one group or consists of whole groups."""
        rest_of_group = self.group_size - first % self.group_size
        full = self._full_piece(plan)
        if plan.is_sequential(self._most(plan)):
            return first + rest_of_group
        if full < self.group_size or rest_of_group < self.group_size:
            return first + min(full, rest_of_group)
        return min(first + full, len(self))

    def _full_piece(self, plan: ExecutionPlan) -> int:
        """Number of members of a piece, if there are enough of them."""
        size = min(plan.pace.size(self._most(plan)), self._most(plan))
        return size if size < self.group_size else size // self.group_size * self.group_size

    def _most(self, plan: ExecutionPlan) -> int:
        """Number of members of the largest piece; a function that draws random numbers may not mix groups."""
        return self.group_size if plan.verdict.draws else len(self)

    def _subject(
        self,
        function: Callable[..., Tree],
        grouped: Sequence[Tree],
        own: Sequence[Tree],
        seeds: Sequence[int],
        first: int,
        end: int,
    ) -> Subject:
        """The function with members `first` to before `end`, of one group or of whole groups."""
        group, end_group = first // self.group_size, (end - 1) // self.group_size + 1
        own, shared = between(own, first, end), ()
        if end_group - group == 1:
            shared = pick(grouped, group)
        else:
            own = (*repeated(between(grouped, group, end_group), self.group_size), *own)
        noise = of_members(self._noise, first, end)
        seed = partial(seeded, seeds[group] if seeds else None, self._device)
        return Subject(function, self._parameters, self._weights, noise, shared, own, seed)

    def _run(self, subject: Subject, plan: ExecutionPlan) -> Tree:
        """The results of the members; the plan records their time."""
        started = self._plans.now(self._device)
        is_sequential = plan.is_sequential(self._most(plan))
        results = None if is_sequential else self._run_batched(subject, plan, started)
        if results is None:
            results = stacked(subject.sequential())
        plan.worked(self._plans.now(self._device) - started, sequential=is_sequential)
        return results

    def _run_batched(self, subject: Subject, plan: ExecutionPlan, started: float) -> Tree | None:
        """The results of the members; None if they can't be batched after all."""
        most, n_members = self._most(plan), number_of_members(subject.noise)
        size, is_full = plan.pace.size(most), n_members == self._full_piece(plan)
        try:
            results = subject.batched()
        except Refused:
            raise
        except torch.cuda.OutOfMemoryError:
            plan.pace.shrink(n_members)
            return None
        except Exception as error:  # whatever vmap refuses now and did not refuse in the first trial
            plan.give_up(error)
            return None
        if is_full:
            plan.pace.record(size, (self._plans.now(self._device) - started) / n_members)
        return results
