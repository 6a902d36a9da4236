"""How the members of a function are run, and why: found once per function, on the first members that run it."""

from collections.abc import Callable, Mapping
from functools import partial
from timeit import default_timer
from typing import Any, final

import torch
from torch import Tensor

from fedlearn.tasks.torch.pace import Pace
from fedlearn.tasks.torch.trial import Subject, Verdict, first_line, hold_trial

N_TRIED = 4
"""Members that are run both ways."""
HOPELESS_S = 0.2
"""If N_TRIED members take this long at once, Python's share is small: if one by one was faster, it stays faster."""
OWN_NUMBERS = 2**28
"""The most numbers in all members' own matrices: 1 GiB."""


@final
class Way:
    """How the members of one function are run."""

    def __init__(self, name: str, verdict: Verdict, most_at_once: int) -> None:
        self.name, self.verdict = name, verdict
        self.pace = Pace(min(max(OWN_NUMBERS // max(verdict.own_numbers, 1), 1), most_at_once))
        self._refusal = verdict.refusal

    def is_alone(self, n_members: int) -> bool:
        """Whether `n_members` are run one by one."""
        if self._refusal:
            return True
        verdict = self.verdict
        is_slower = verdict.together_s > verdict.alone_s
        if self.pace.best is None:
            return is_slower and verdict.together_s * N_TRIED > HOPELESS_S
        return self.pace.is_sure(n_members) and self.pace.best[0] > verdict.alone_s

    def give_up(self, error: Exception) -> None:
        """Runs members one by one from now on, since vmap refuses what it did not refuse in the trial."""
        self._refusal = first_line(error)

    def __str__(self) -> str:
        verdict = self.verdict
        one_by_one = f"one by one {verdict.alone_s * 1e3:.2f} ms a member"
        lines = [f"{self.name}: {one_by_one}; not at once: {self._refusal}"]
        if not self._refusal:
            seconds, size = self.pace.best or (verdict.together_s, N_TRIED)
            lines = [f"{self.name}: {one_by_one}, {size} at once {seconds * 1e3:.2f} ms"]
        if verdict.by_rule:
            lines.append(f"  shared weights: {', '.join(verdict.by_rule)}")
        if verdict.by_tensor:
            lines.append(f"  members' own matrices (slower): {', '.join(verdict.by_tensor)}")
        for alone, at_once in verdict.losses:
            lines.append(f"  loss of a member: {alone:.6g} one by one, {at_once:.6g} at once")
        return "\n".join(lines)


@final
class Ways:
    """How the members of each function of a task are run, by the code of the function."""

    def __init__(self, frozen: Callable[[], Mapping[str, Tensor]]) -> None:
        """`frozen` gives the tensors that functions must leave as they are."""
        self._frozen = frozen
        self.clock: Callable[[], float] = default_timer
        """Seconds; with a single thread, the time that the thread ran is steadier than the time that passed."""
        self.most_at_once = 2**31
        """Members that fit into memory, where that is known."""
        self._ways: dict[object, Way] = {}

    def find(self, function: Callable[..., Any]) -> Way | None:
        """How the function's members are run; None before its trial."""
        return self._ways.get(_code_of(function))

    def hold_trial(self, subject: Subject, n_tried: int) -> Way:
        """Finds how the members of the subject's function are run.

        Raises:
            Refused: the function does something by which members cannot be compared, or reads no parameter.
        """
        verdict = hold_trial(subject, n_tried, self._frozen, self.now)
        code = _code_of(subject.function)
        self._ways[code] = way = Way(str(getattr(code, "co_name", type(code).__name__)), verdict, self.most_at_once)
        return way

    def now(self) -> float:
        """Seconds, when everything that was asked of the device is done."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        elif torch.backends.mps.is_available():
            torch.mps.synchronize()
        return self.clock()

    def __str__(self) -> str:
        return "\n".join(map(str, self._ways.values()))


def _code_of(function: Any) -> object:  # noqa: ANN401 (any callable)
    """What stays the same where a function is defined anew for every call."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__code__", function)
