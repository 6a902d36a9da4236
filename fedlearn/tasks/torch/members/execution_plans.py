"""Execution plans: whether a function's members run sequentially or batched, decided by a trial that is repeated."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import unwrap
from time import get_clock_info, thread_time
from timeit import default_timer
from typing import Any, final

import torch
from torch import Tensor

from fedlearn.tasks.torch.members.chunk_size import ChunkSize
from fedlearn.tasks.torch.members.trial import Subject, TrialOutcome, first_line, hold_trial
from fedlearn.tasks.torch.trees import Tree

N_TRIED = 4
"""Number of members in a trial, each of which runs sequentially and batched."""
HOPELESS_S = 0.2
"""Seconds of a batched run of N_TRIED members above which Python's share is small, so that a slower one stays
slower."""
OWN_NUMBERS = 2**28
"""The most elements of all members' own matrices together, which take 1 GiB."""
WORK_PER_TRIAL = 100
"""The multiple of a trial's duration after which the next one is due."""
HAS_FINE_CLOCK = "clock_gettime" in get_clock_info("thread_time").implementation
"""Whether the time of a thread is precise; on Windows it moves in steps of 16 ms, which is longer than a trial."""


@final
class ExecutionPlan:
    """The decision whether one function's members run sequentially or batched, with its reasons."""

    def __init__(self, name: str, verdict: TrialOutcome, pace: ChunkSize, *, trial_s: float) -> None:
        """`trial_s` is the duration of the trial in seconds."""
        self.name, self.verdict, self.pace = name, verdict, pace
        self._refusal = verdict.refusal
        self._work_left_s = WORK_PER_TRIAL * trial_s
        self._was_sequential = False

    @property
    def is_due(self) -> bool:
        """Whether the trial was so long ago that another one costs little."""
        return self._work_left_s < 0

    def worked(self, seconds: float, *, sequential: bool) -> None:
        """Adds the seconds of a run to the time since the trial, and notes whether it was sequential."""
        self._work_left_s -= seconds
        self._was_sequential = sequential

    def is_sequential(self, n_members: int) -> bool:
        """Whether `n_members` members run sequentially."""
        if self._refusal:
            return True
        verdict = self.verdict
        is_slower = verdict.batched_s > verdict.sequential_s
        if self.pace.best is None:
            return is_slower and verdict.batched_s * N_TRIED > HOPELESS_S
        return self.pace.is_sure(n_members) and self.pace.best[0] > verdict.sequential_s

    def give_up(self, error: Exception) -> None:
        """Switches to sequential runs, because vmap refuses what it did not refuse in the trial."""
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
    """The execution plans of a task's functions, by the code of the function."""

    def __init__(
        self,
        frozen: Callable[[], Mapping[str, Tensor]],
        keepers: Callable[[], Mapping[str, str]] = dict,
        elsewhere: Callable[[], Iterable[Sequence[Tree]]] = tuple,
    ) -> None:
        """`frozen` gives the tensors that functions must not change, `keepers` attributes that keep other tensors.

        `elsewhere` gives arguments of other groups, which are asked where one group leaves parameters unread.
        """
        self._frozen, self._keepers, self._elsewhere = frozen, keepers, elsewhere
        self.clock: Callable[[torch.device], float] = processor_clock
        """The clock of a device, in seconds."""
        self.most_at_once = 2**31
        """The number of members that fit into memory, if it is known."""
        self._plans: dict[object, ExecutionPlan] = {}

    def find(self, function: Callable[..., Any]) -> ExecutionPlan | None:
        """The plan for the function's members; None before its trial, and when the next one is due."""
        plan = self._plans.get(_code_of(function))
        return None if plan is not None and plan.is_due else plan

    def hold_trial(self, subject: Subject, n_tried: int) -> ExecutionPlan:
        """Makes a plan for the subject's function by a trial.

        Raises:
            Refused: the function does something by which members cannot be compared, or reads no parameter.
        """
        code, clock = _code_of(subject.function), partial(self.now, subject.device)
        started, is_first = clock(), code not in self._plans
        keepers, elsewhere = self._keepers, self._elsewhere
        verdict = hold_trial(
            subject, n_tried, self._frozen, clock, keepers=keepers, elsewhere=elsewhere, is_first=is_first
        )
        trial_s = clock() - started
        name = str(getattr(code, "co_name", type(code).__name__))
        if is_first:
            pace = ChunkSize(min(max(OWN_NUMBERS // max(verdict.own_numbers, 1), 1), self.most_at_once))
        else:
            pace = self._plans[code].pace.again()
        self._plans[code] = plan = ExecutionPlan(name, verdict, pace, trial_s=trial_s)
        return plan

    def now(self, device: torch.device) -> float:
        """The device's clock in seconds, after all work that was queued on it is done."""
        if device.type == "cuda":
            torch.cuda.synchronize()
        elif device.type == "mps":
            torch.mps.synchronize()
        return self.clock(device)

    def __str__(self) -> str:
        return "\n".join(map(str, self._plans.values()))


def processor_clock(device: torch.device) -> float:
    """Processor time of this thread in seconds, or wall-clock time if the work runs on another device.

    The time of other programs does not count, so that a busy machine chooses as an idle one does. If several threads
    share the work, this one takes part to the end.
    """
    return thread_time() if device.type == "cpu" and HAS_FINE_CLOCK else default_timer()


def _code_of(function: Any) -> object:  # noqa: ANN401 (any callable)
    """The part of a function that stays the same if it is defined anew for every call."""
    while isinstance(function, partial):
        function = function.func
    return getattr(unwrap(function), "__code__", function)
