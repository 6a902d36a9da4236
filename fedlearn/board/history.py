"""The history of a run, as a page shows it: read from its folder, kept in bounded memory, shared by all viewers."""

from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Any, final

import msgspec
import numpy as np
from msgspec import Meta

from fedlearn.board.curve import DRAWN, BucketedCurve, columns, rows_of
from fedlearn.board.decimated_list import DecimatedList
from fedlearn.board.growing import GrowingFile
from fedlearn.coordination.steps.report import FIGURES, SPREAD, Figures
from fedlearn.storage.logs.samples import Sample
from fedlearn.storage.runs import RunFolder

MAX_VALIDATIONS = 1000
MAX_SAMPLES = 200
MAX_SAMPLE_CHARACTERS = 2000


Count = Annotated[int, Meta(ge=-(2**53), le=2**53)]
"""An integer no larger than a curve holds exactly."""


class StepPoint(Figures, frozen=True, kw_only=True, gc=False):
    """The part of a line of metrics that a page shows; see StepMetrics."""

    step: Count
    loss: float | None
    shown: dict[str, float]
    work_per_s: float
    volunteers: Count
    bytes_in: Count
    bytes_out: Count
    work: Count = 0
    elapsed_s: float = 0.0
    validation: dict[str, float] = msgspec.field(default_factory=dict)


_AXES_OF = attrgetter("step", "elapsed_s", "work")
_FIGURES_OF = attrgetter(*(name for name in DRAWN if name != "shown"))


class Validation(msgspec.Struct, frozen=True):
    """Figures of the unperturbed weights, and the positions on each axis at which they were measured."""

    step: float
    seconds: float
    work: float
    figures: dict[str, float | None]


class Looked(msgspec.Struct, frozen=True):
    """An examination of the model, as far as it is shown."""

    step: int
    time: float
    figures: dict[str, float | None]
    text: str


@final
class History:
    """The growing data of one run.

    Attributes:
        version: number of changes; 0 before anything was read.
    """

    def __init__(self, folder: RunFolder, after: "History | None" = None) -> None:
        """`after` is the history of the run that had this folder's name before; viewers of that one are sent all of
        this one."""
        self.version: int = after.version if after is not None else 0
        self._encoded: tuple[int, bytes] | None = None
        """The encoded history, with its version."""
        self._metrics = GrowingFile(folder.metrics, StepPoint)
        self._looks = GrowingFile(folder.samples, Sample)
        self._forget_steps()
        self._curve.epoch = after.epoch + 1 if after is not None else 0
        self._samples: DecimatedList[Looked] = DecimatedList(MAX_SAMPLES)

    def read(self) -> dict[str, Any] | None:
        """Reads on to the end; gives the changes, None where there are none.

        Rows from `from` on replace earlier ones; another `epoch` than before means that all must be fetched again.
        """
        before, n_whole, looks = self._curve.epoch, self._curve.n_whole, self._read_looks()
        validations = self._read_steps()
        if validations is None and not looks:
            return None
        self.version += 1
        change: dict[str, Any] = {"version": self.version, "epoch": self._curve.epoch, "samples": looks}
        if validations is not None and self._curve.epoch == before:
            rows = columns(self._curve.rows[n_whole:])
            change |= {"from": n_whole, "shown": self._shown, "curve": rows, "validation": validations}
        return change

    @property
    def epoch(self) -> int:
        """Number of times that data which viewers have became invalid."""
        return self._curve.epoch

    def everything(self) -> bytes:
        """The whole history as JSON, encoded once for all viewers until the next change."""
        if self._encoded is None or self._encoded[0] != self.version:
            content = {
                "version": self.version,
                "epoch": self._curve.epoch,
                "shown": self._shown,
                "figures": {name: figure.label for name, figure in FIGURES.items()},
                "spread": SPREAD,
                "curve": columns(self._curve.rows),
                "validation": self._validations.items,
                "samples": self._samples.items,
            }
            self._encoded = self.version, msgspec.json.encode(content)
        return self._encoded[1]

    def _forget_steps(self) -> None:
        self._curve, self._shown = BucketedCurve(), ""
        self._validations: DecimatedList[Validation] = DecimatedList(MAX_VALIDATIONS)

    def _read_looks(self) -> list[Looked]:
        found: list[Looked] = []
        while True:
            lines, is_other = self._looks.read()
            if is_other:
                self._samples = DecimatedList(MAX_SAMPLES)
            if not lines:
                return found[-MAX_SAMPLES:]
            for line in lines:
                found.append(Looked(line.step, line.time, line.figures, line.text[:MAX_SAMPLE_CHARACTERS]))
                self._samples.append(found[-1])

    def _read_steps(self) -> list[Validation] | None:
        """Validations in the new steps; None where there are no new steps."""
        found: list[Validation] | None = None
        while True:
            lines, is_other = self._metrics.read()
            if is_other:
                epoch = self._curve.epoch
                self._forget_steps()
                self._curve.epoch = epoch + 1
            if not lines:
                return found
            found = [*(found or []), *self._add(lines)][-MAX_VALIDATIONS:]

    def _add(self, lines: list[StepPoint]) -> list[Validation]:
        """Adds lines; a run that was taken back to an earlier step repeats some steps."""
        turns = [place for place in range(1, len(lines)) if lines[place].step <= lines[place - 1].step]
        found = []
        for start, end in pairwise([0, *turns, len(lines)]):
            if lines[start].step <= self._curve.last["step"]:
                self._curve.cut(lines[start].step)
            found += self._add_ascending(lines[start:end])
        return found

    def _add_ascending(self, lines: list[StepPoint]) -> list[Validation]:
        if not self._shown:
            self._shown = next((name for line in lines for name in line.shown), "")
        axes = np.array([*map(_AXES_OF, lines)], dtype=np.float64)
        work = axes[:, 2] = self._curve.last["work"] + np.cumsum(axes[:, 2])
        figures = np.array([*map(_FIGURES_OF, lines)], dtype=np.float64)  # where None is NaN
        shown = np.array([line.shown.get(self._shown) for line in lines], dtype=np.float64)
        self._curve.add(rows_of(axes, np.insert(figures, 1, shown, axis=1)))
        found = [
            Validation(line.step, line.elapsed_s, float(at), dict(line.validation))
            for line, at in zip(lines, work, strict=True)
            if line.validation
        ]
        for validation in found:
            self._validations.append(validation)
        return found
