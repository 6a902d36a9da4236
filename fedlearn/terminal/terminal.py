"""What the person sees who has a run: where it stands, in a block or in a line a second, and lines that stay."""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TextIO, final

from fedlearn.callback import Begun, Callback
from fedlearn.coordination.status import RunStatus
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.terminal.curve import RunningCurve
from fedlearn.terminal.drawing import (
    LABEL_COLUMNS,
    Goal,
    LiveBlock,
    Loss,
    draw_sample,
    names_in_words,
    show_block,
    work_in_words,
)
from fedlearn.terminal.figures import counted, format_figures, format_shown, format_step
from fedlearn.terminal.screen import Screen, mode_on

BLOCK_INTERVAL_S = 0.4
"""The least number of seconds between two drawings of the block, so that eyes can follow."""

LINE_INTERVAL_S = 1.0
"""The least number of seconds between two lines of figures without a block."""

KEPT_LINE_INTERVAL_S = 10.0
"""Seconds between lines of figures that stay above a block, so that the history can be read."""

LONG_STEP_S = 2.0
"""Seconds of a step above which the block shows when the next one begins at the latest."""

COPIED = ("join with: ", "in a browser: ")
"""Texts before a command for volunteers or an address, which people copy in one piece."""

LOOK_S = 2.0
"""Seconds for which lines of steps wait for an examination, so that its result stands before later steps."""

RATE_STEPS = 100
"""Number of the last steps over which their rate is computed."""


@final
class Terminal(Callback):
    """Writes to a stream; on a terminal the last lines show where the run stands."""

    def __init__(
        self,
        *,
        stream: TextIO | None = None,
        plain: bool = False,
        quiet: bool = False,
        verbose: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        stream = stream if stream is not None else sys.stdout
        self.screen = Screen(stream, mode_on(stream, plain=plain, quiet=quiet))
        self._is_verbose = verbose
        self._clock = clock
        self._block_due = self._line_due = 0.0
        self._held_until = 0.0
        self._begin(None)

    def _begin(self, begun: Begun | None) -> None:
        """Forgets the run before, since a relay's terminal shows one run after another."""
        self._begun = begun
        self._curve = RunningCurve()
        self._last: StepMetrics | None = None
        self._status: RunStatus | None = None
        self._stepped: deque[tuple[float, int]] = deque(maxlen=RATE_STEPS)
        self._sample = self._sampled = ""
        self._unsaid = ""

    def say(self, text: str, *, command: str = "") -> None:
        """A line that stays."""
        if self.screen.mode != "quiet":
            self.screen.line(text, command=command)

    def warn(self, text: str) -> None:
        """A line about what goes wrong, which is said in every mode."""
        self.screen.line(text)

    def end(self, text: str, *, command: str = "") -> None:
        """A line about how it ended, which is said in every mode."""
        self.screen.line(text, command=command)

    def show_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:
        """What came of a look at the model, in lines that stay."""
        if self.screen.mode == "live":
            self._hold_sample(step, figures, sample)
            self._keep_sample()
        else:
            self._say_examined(step, figures, sample)

    def close(self) -> None:
        """Takes the block away; the figures of the last step stay, in a line if they had none."""
        self.screen.clear()
        self._keep_sample()
        if self._unsaid:
            self.say(self._unsaid)
        self._last, self._unsaid = None, ""

    # ---- what a run tells

    def on_begin(self, begun: Begun) -> None:
        self._begin(begun)

    def on_join(self, name: str) -> None:
        self.say(f"{name} joined")

    def on_local_join(self, name: str) -> None:
        """The figures of each step count it."""
        if self._is_verbose:
            self.on_join(name)

    def on_leave(self, name: str, reason: str) -> None:
        self.say(f"{name} left: {reason}")

    def on_notice(self, text: str) -> None:
        before = next((words for words in COPIED if words in text), "")
        if before and self.screen.mode == "live" and len(text) >= self.screen.console.width:
            said, _, copied = text.partition(before)
            self.say(f"{said}{before.removesuffix(': ')}", command=copied)
        else:
            self.say(text)

    def on_problem(self, text: str) -> None:
        self.warn(text)

    def on_look(self, step: int) -> None:  # noqa: ARG002 (the result has it)
        if self._unsaid and self.screen.mode == "plain":
            self._say_step(self._unsaid)
        self._held_until = self._clock() + LOOK_S

    def on_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:
        if self.screen.mode == "live":
            self._keep_sample()
            self._hold_sample(step, figures, sample)
            self._renew()
        else:
            self._held_until = 0.0
            self._say_examined(step, figures, sample)

    def on_status(self, status: RunStatus) -> None:
        self._status = status
        self._renew()

    def on_step(self, metrics: StepMetrics) -> None:
        """The figures of a step; not every step gets its line when steps are short."""
        now = self._clock()
        self._last = metrics
        self._stepped.append((now, metrics.step))
        for value in list(metrics.shown.values())[:1]:
            self._curve.add(value, now)
        left_s = self._status.run_left_s if self._status is not None else None
        line = format_step(metrics, left_s, self._unit)
        if now >= max(self._line_due, self._held_until):
            self._say_step(line)
        else:
            self._unsaid = line
        self._renew()

    def on_end(self, reason: str) -> None:  # noqa: ARG002 (whoever has the run says it, with what to do next)
        self.close()

    # ---- the block

    @property
    def _unit(self) -> str:
        return self._begun.unit if self._begun is not None else "tokens"

    def _renew(self) -> None:
        now = self._clock()
        if self.screen.mode != "live" or now < self._block_due or self._begun is None:
            return
        self._block_due = now + BLOCK_INTERVAL_S
        show_block(self.screen, self._block(self.screen.console.width, now))

    def _block(self, width: int, now: float) -> LiveBlock:
        assert self._begun is not None
        metrics = self._last
        loss = Loss(format_shown(metrics), self._curve) if metrics is not None and metrics.shown else None
        facts = [("machines", self._machines(width - LABEL_COLUMNS - 1))]
        if self._status is not None and self._status.state == "paused":
            ending = "; the open step still ends" if self._status.open_step is not None else ""
            facts.insert(0, ("state", self._status.reason + ending))
        elif metrics is not None:
            said = work_in_words(metrics.work_per_s, self._unit, self._steps_per_s)
            facts.insert(0, ("speed", said + self._next_in(now)))
        return LiveBlock(
            title=self._begun.run,
            goal=self._goal(),
            loss=loss,
            facts=tuple(facts),
            sample=self._sample,
            sampled=self._sampled,
        )

    def _goal(self) -> Goal:
        assert self._begun is not None
        status = self._status
        step = self._last.step + 1 if self._last is not None else self._begun.step
        if status is None:
            return Goal(step)
        shares, left_s = [], status.run_left_s if status.run_left_s is not None else math.inf
        if status.steps:
            shares.append(step / status.steps)
            if self._steps_per_s:
                left_s = min(left_s, max(status.steps - step, 0) / self._steps_per_s)
        if status.duration_s and status.run_left_s is not None:
            shares.append(1.0 - status.run_left_s / status.duration_s)
        return Goal(step, status.steps, left_s, max(shares) if shares else None)

    @property
    def _steps_per_s(self) -> float:
        if len(self._stepped) < 2:
            return 0.0
        (began, first), (ended, last) = self._stepped[0], self._stepped[-1]
        return (last - first) / max(ended - began, 1e-6)

    def _next_in(self, now: float) -> str:
        step = self._status.open_step if self._status is not None else None
        if step is None or not self._stepped or now < self._stepped[-1][0] + LONG_STEP_S:
            return ""
        return f", next step in {step.left_s:.0f} s"

    def _machines(self, room: int) -> str:
        if self._status is None or not self._status.volunteers:
            return "waiting for volunteers"
        names = [(one.name, one.share) for one in self._status.volunteers]
        waiting = "waiting until one has the weights, " if self._status.state == "waiting" else ""
        said = f"{waiting}{counted(len(names), 'volunteer')}: "
        return said + names_in_words(names, room - len(said))

    def _hold_sample(self, step: int, figures: Mapping[str, float], sample: str) -> None:
        validation = f": validation {format_figures(figures)}" if figures else ""
        self._sample, self._sampled = sample, f"at step {step}{validation}"

    def _say_step(self, line: str) -> None:
        self._line_due = self._clock() + (KEPT_LINE_INTERVAL_S if self.screen.mode == "live" else LINE_INTERVAL_S)
        self._unsaid = ""
        self._keep_sample()  # of an earlier step
        self.say(line)

    def _say_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:
        sentences = [f"validation {format_figures(figures)}"] if figures else []
        sentences += [f"it writes: {' '.join(sample.split())}"] if sample else []
        if sentences:
            self.say(f"step {step:>5}  {'; '.join(sentences)}")

    def _keep_sample(self) -> None:
        """What the block showed stays above it, so that one can scroll back to see a model learn to write."""
        if self._sampled:
            self.screen.draw(draw_sample(self._sampled, self._sample, width=self.screen.console.width))
        self._sample = self._sampled = ""
