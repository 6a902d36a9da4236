"""How the members of a function are run, and why: found on the first members that run it, and anew now and then."""

from collections.abc import Callable, Mapping
from functools import partial
from time import get_clock_info, thread_time
from timeit import default_timer
from typing import Any, final

import torch
from torch import Tensor

from fedlearn.tasks.torch.members.chunk_size import ChunkSize
from fedlearn.tasks.torch.members.trial import Subject, TrialOutcome, first_line, hold_trial

N_TRIED = 4
"""Members that are run both ways."""
HOPELESS_S = 0.2
"""If N_TRIED members take this long at once, Python's share is small: if one by one was faster, it stays faster."""
OWN_NUMBERS = 2**28
"""The most numbers in all members' own matrices: 1 GiB."""
WORK_PER_TRIAL = 100
"""A trial is held again after this many times its own duration."""
HAS_FINE_CLOCK = "clock_gettime" in get_clock_info("thread_time").implementation
"""Elsewhere, as on Windows, the time of a thread moves in steps of 16 ms, which is longer than a trial."""


@final
class ExecutionPlan:
    """How the members of one function are run."""

    def __init__(self, name: str, verdict: TrialOutcome, pace: ChunkSize, *, trial_s: float) -> None:
        """`trial_s` is how long the trial took."""
        self.name, self.verdict, self.pace = name, verdict, pace
        self._refusal = verdict.refusal
        self._work_left_s = WORK_PER_TRIAL * trial_s
        self._was_sequential = False

    @property
    def is_due(self) -> bool:
        """Whether the trial was so long ago that another one costs little."""
        return self._work_left_s < 0

    def worked(self, seconds: float, *, sequential: bool) -> None:
        """Counts the time of members that were run, and how they were."""
        self._work_left_s -= seconds
        self._was_sequential = sequential

    def is_sequential(self, n_members: int) -> bool:
        """Whether `n_members` are run one by one."""
        if self._refusal:
            return True
        verdict = self.verdict
        is_slower = verdict.batched_s > verdict.sequential_s
        if self.pace.best is None:
            return is_slower and verdict.batched_s * N_TRIED > HOPELESS_S
        return self.pace.is_sure(n_members) and self.pace.best[0] > verdict.sequential_s

    def give_up(self, error: Exception) -> None:
        """Runs members one by one from now on, since vmap refuses what it did not refuse in the trial."""
        self._refusal = first_line(error)

    def __str__(self) -> str:
        verdict = self.verdict
        sequential = f"one by one: {verdict.sequential_s * 1e3:.2f} ms a member"
        lines = [f"{self.name}: {sequential}; not at once: {self._refusal}"]
        if not self._refusal:
            seconds, size = self.pace.best or (verdict.batched_s, N_TRIED)
            batched = f"{size} at once: {seconds * 1e3:.2f} ms a member"
            taken, other = (sequential, batched) if self._was_sequential else (batched, sequential)
            lines = [f"{self.name}: {taken}; not {other}"]
        if verdict.by_rule:
            lines.append(f"  shared weights: {', '.join(verdict.by_rule)}")
        if verdict.by_tensor:
            lines.append(f"  members' own matrices (slower): {', '.join(verdict.by_tensor)}")
        for sequential_loss, batched_loss in verdict.losses:
            lines.append(f"  loss of a member: {sequential_loss:.6g} one by one, {batched_loss:.6g} at once")
        return "\n".join(lines)


@final
class ExecutionPlans:
    """How the members of each function of a task are run, by the code of the function."""

    def __init__(
        self, frozen: Callable[[], Mapping[str, Tensor]], keepers: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        """`frozen` gives the tensors that functions must leave as they are, `keepers` attributes that keep others."""
        self._frozen, self._keepers = frozen, keepers
        self.clock: Callable[[torch.device], float] = processor_clock
        """Gives seconds."""
        self.most_at_once = 2**31
        """Members that fit into memory, where that is known."""
        self._plans: dict[object, ExecutionPlan] = {}

    def find(self, function: Callable[..., Any]) -> ExecutionPlan | None:
        """How the function's members are run; None before its trial, and when another one is due."""
        plan = self._plans.get(_code_of(function))
        return None if plan is not None and plan.is_due else plan

    def hold_trial(self, subject: Subject, n_tried: int) -> ExecutionPlan:
        """Finds how the members of the subject's function are run.

        Raises:
            Refused: the function does something by which members cannot be compared, or reads no parameter.
        """
        started = self.now(subject.device)
        verdict = hold_trial(subject, n_tried, self._frozen, partial(self.now, subject.device), keepers=self._keepers)
        trial_s = self.now(subject.device) - started
        code = _code_of(subject.function)
        name = str(getattr(code, "co_name", type(code).__name__))
        if code in self._plans:
            pace = self._plans[code].pace.again()
        else:
            pace = ChunkSize(min(max(OWN_NUMBERS // max(verdict.own_numbers, 1), 1), self.most_at_once))
        self._plans[code] = plan = ExecutionPlan(name, verdict, pace, trial_s=trial_s)
        return plan

    def now(self, device: torch.device) -> float:
        """Seconds, when everything that was asked of the device is done."""
        if device.type == "cuda":
            torch.cuda.synchronize()
        elif device.type == "mps":
            torch.mps.synchronize()
        return self.clock(device)

    def __str__(self) -> str:
        return "\n".join(map(str, self._plans.values()))


def processor_clock(device: torch.device) -> float:
    """Seconds that this thread had a processor; where the work is a device's, seconds that passed.

    Other programs' turns on the processor do not count, so that a busy machine chooses as an idle one does. Of several
    threads that share the work, this one takes part to the end.
    """
    return thread_time() if device.type == "cpu" and HAS_FINE_CLOCK else default_timer()


def _code_of(function: Any) -> object:  # noqa: ANN401 (any callable)
    """What stays the same where a function is defined anew for every call."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__code__", function)
