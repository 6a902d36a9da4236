"""The members of some groups around one module, ready to be tried."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import final

import numpy as np
import torch
from torch import Tensor

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.torch.noise import Noise, number_of_members, of_members
from fedlearn.tasks.torch.refusals import Refused
from fedlearn.tasks.torch.seeds import seeded
from fedlearn.tasks.torch.trees import Tree, as_tensors, between, joined, pick, repeated, stacked
from fedlearn.tasks.torch.trial import Subject
from fedlearn.tasks.torch.ways import N_TRIED, Way, Ways


@final
class TorchMembers:
    """Implements `fedlearn.tasks.task.Members`; what functions are given and give are tensors."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        weights: Sequence[Tensor],
        noise: Sequence[Noise],
        *,
        n_groups: int,
        ways: Ways,
        window: int = 0,
    ) -> None:
        """`parameters` hold `weights`, which are in memory of their own.

        With a `window`, so many members of a group are run at once, from its first, and no other way is tried: what is
        summed is summed in one order then, so that a crew of seats gives the same to the bit. 0: what is fastest here.
        """
        self.n_groups = n_groups
        self.group_size = number_of_members(noise) // n_groups
        self._parameters, self._weights, self._noise, self._ways = parameters, list(weights), list(noise), ways
        self._device, self._window = self._weights[0].device, window

    def __len__(self) -> int:
        return self.n_groups * self.group_size

    def __call__(
        self, function: Callable[..., Tree], *grouped: Tree, own: Sequence[Tree] = (), seeds: Sequence[int] = ()
    ) -> Tree:
        """`function(*grouped, *own)` by each member; results are tensors [members, ...], in the function's structure.

        Arrays and tensors in `grouped` are [groups, ...] and a member is given its group's; those in `own` are
        [members, ...]. They may lie in dictionaries, lists and tuples. With `seeds`, one a group, what the function
        draws from PyTorch's generators is the same for all members of a group, on every machine.

        Raises:
            Refused: the function does what members can't be compared by, or nothing reads a parameter.
        """
        grouped, own = as_tensors((grouped, tuple(own)), self._device)
        subject = partial(self._subject, function, grouped, own, seeds)
        if self._window:
            return joined([subject(*window).together_or_alone() for window in self._windows()])
        way = self._ways.find(function)
        results: list[Tree] = []
        first = 0
        if way is None:
            first = min(N_TRIED, self.group_size)
            way = self._ways.hold_trial(subject(0, first), first)
            results.append(way.verdict.results)
        while first < len(self):
            end = self._end_of_piece(first, way)
            results.append(self._run(subject(first, end), way))
            first = end
        return joined(results)

    def each(self) -> Iterator[Mapping[str, Float32Array]]:
        """Each member's tensors as plain arrays, by name."""
        for member in range(len(self)):
            noises = of_members(self._noise, member, member + 1)
            named = zip(self._parameters, self._weights, noises, strict=True)
            yield {name: np.asarray(noise.added_to(tensor)[0].cpu()) for name, tensor, noise in named}

    def _windows(self) -> Iterator[tuple[int, int]]:
        for group in range(0, len(self), self.group_size):
            end = group + self.group_size
            yield from ((first, min(first + self._window, end)) for first in range(group, end, self._window))

    def _end_of_piece(self, first: int, way: Way) -> int:
        """Pieces are parts of a group, or whole groups."""
        rest_of_group = self.group_size - first % self.group_size
        full = self._full_piece(way)
        if way.is_alone(self._most(way)):
            return first + rest_of_group
        if full < self.group_size or rest_of_group < self.group_size:
            return first + min(full, rest_of_group)
        return min(first + full, len(self))

    def _full_piece(self, way: Way) -> int:
        """Members of a piece where there are enough."""
        size = min(way.pace.size(self._most(way)), self._most(way))
        return size if size < self.group_size else size // self.group_size * self.group_size

    def _most(self, way: Way) -> int:
        """Members of the largest piece: what a group draws at random, other groups must not."""
        return self.group_size if way.verdict.draws else len(self)

    def _subject(
        self,
        function: Callable[..., Tree],
        grouped: Sequence[Tree],
        own: Sequence[Tree],
        seeds: Sequence[int],
        first: int,
        end: int,
    ) -> Subject:
        """Members `first` to `end`, of one group or of whole groups."""
        group, end_group = first // self.group_size, (end - 1) // self.group_size + 1
        own, shared = between(own, first, end), ()
        if end_group - group == 1:
            shared = pick(grouped, group)
        else:
            own = (*repeated(between(grouped, group, end_group), self.group_size), *own)
        noise = of_members(self._noise, first, end)
        seed = partial(seeded, seeds[group] if seeds else None, self._device)
        return Subject(function, self._parameters, self._weights, noise, shared, own, seed)

    def _run(self, subject: Subject, way: Way) -> Tree:
        most, n_members = self._most(way), number_of_members(subject.noise)
        if way.is_alone(most):
            return stacked(subject.alone())
        size, is_full, started = way.pace.size(most), n_members == self._full_piece(way), self._ways.now()
        try:
            results = subject.together()
        except Refused:
            raise
        except torch.cuda.OutOfMemoryError:
            way.pace.shrink(n_members)
        except Exception as error:  # Whatever vmap refuses, if it did not in the trial.
            way.give_up(error)
        else:
            if is_full:
                way.pace.record(size, (self._ways.now() - started) / n_members)
            return results
        return stacked(subject.alone())
