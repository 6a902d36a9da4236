"""The board's process for models: it lets them write and counts n-grams, one request at a time.

Requests come as lines of JSON on standard input, and answers go as lines of JSON to standard output. A model that
fails, or takes all memory, ends this process and no other.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import final

import msgspec
import numpy as np

from fedlearn.board.generation import Abilities, GenerationRequest, Request, TextDelta
from fedlearn.board.marks import timeline_of
from fedlearn.runs.history import follow_journal
from fedlearn.runs.run import Run, find
from fedlearn.storage.checkpoint import latest_checkpoint
from fedlearn.storage.durable import StorageError
from fedlearn.system.processes import step_back
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.kind import TextExaminer
from fedlearn.text.writing import written

FOLLOW_S = 2.0
"""Seconds for taking the steps since the newest checkpoint, or since the last request."""

NICENESS = 19
"""Niceness of this process, so that everything else on this machine goes first."""


class _LateError(Exception):
    """Raised when enough time was spent on steps for one request."""


@final
class LoadedModel:
    """A run's model, which takes the run's new steps from request to request."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        # Without its task's code: a visitor asks, and must not run what a folder names. Those tasks write no text.
        self.run: Run = find(str(Path(folder).parent), Path(folder).name)
        self._timeline = timeline_of(self.run.folder)
        self._holding: Holding | None = None

    def is_of(self, folder: str) -> bool:
        """True while the folder still has the run, and no steps were taken back since."""
        return folder == self.folder and timeline_of(self.run.folder) == self._timeline

    def followed(self) -> Holding:
        """The replica at the end of the journal, or as near to it as FOLLOW_S allows."""
        checkpoint, _ = latest_checkpoint(self.run.folder)
        holding, self._holding = self._holding, None
        if holding is None or holding.replica.step < checkpoint.step:
            holding = self.run.holding(threads=1)
            holding.load(checkpoint.snapshot)
        end = time.monotonic() + FOLLOW_S

        def stop_late(_: int) -> None:
            if time.monotonic() > end:
                raise _LateError

        try:
            with suppress(_LateError):
                follow_journal(self.run, holding, problems=[], progress=stop_late)
        except StorageError:  # the run was taken back to an earlier step since
            holding = self.run.holding(threads=1)
            holding.load(checkpoint.snapshot)
        self._holding = holding
        return holding

    def write(self, generation: GenerationRequest) -> Iterator[TextDelta]:
        """The prompt and its continuation as it grows."""
        examiner = self.run.prepared.examiner
        if not isinstance(examiner, TextExaminer):
            yield TextDelta(error="this run's model does not write text", done=True)
            return
        replica = self.followed().replica
        tokenizer = examiner.tokenizer
        prompt = tokenizer.encode(generation.prompt)
        unknown = int(np.count_nonzero(prompt == tokenizer.unknown_token)) if tokenizer.unknown_token is not None else 0
        note = f"{unknown} of the prompt's characters are unknown to this model" if unknown else ""
        yield TextDelta(step=replica.step, note=note)
        shown = ""
        for growing in written(
            examiner.language_model(replica.weights),
            prompt,
            length=generation.length,
            n_beams=generation.beams or None,
            given={} if generation.beams else {"temperature": generation.temperature},
            characters_per_token=examiner.characters_per_token,
            generator=np.random.default_rng(),
        ):
            text = tokenizer.decode(growing.tokens).encode(errors="replace").decode()
            keep = _n_equal(shown, text)
            if text != shown:
                yield TextDelta(keep=keep, add=text[keep:])
            shown = text
        yield TextDelta(keep=len(shown), done=True)

    def abilities(self) -> TextDelta:
        """The abilities of the model, with the losses of n-gram models on its text."""
        examiner = self.run.prepared.examiner
        if not isinstance(examiner, TextExaminer):
            return TextDelta(abilities=Abilities(False, {}), done=True)
        return TextDelta(abilities=Abilities(True, examiner.baselines()), done=True)


def _n_equal(one: str, other: str) -> int:
    """Number of equal characters at the beginning of both texts."""
    differing = (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return next(differing, min(len(one), len(other)))


@final
class Scribe:
    """Answers requests, and keeps the model of the last one for the next."""

    def __init__(self) -> None:
        self._model: LoadedModel | None = None

    def answers(self, request: Request) -> Iterator[TextDelta]:
        """The answer, line by line; the last line is `done`."""
        try:
            if self._model is None or not self._model.is_of(request.folder):
                self._model = None  # before another one takes memory
                self._model = LoadedModel(request.folder)
            if request.what == "abilities":
                yield self._model.abilities()
            else:
                yield from self._model.write(request.generation)
        except Exception as error:
            self._model = None
            # What it says may name files: it is for the operator.
            name = Path(request.folder).name
            print(f"board: run {name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            yield TextDelta(error="this run's model can't be used here; the board's terminal says why", done=True)


def main() -> None:
    """Answers until standard input ends."""
    step_back(os.getpid(), NICENESS)
    scribe = Scribe()
    with open(os.dup(1), "wb", buffering=0) as output:
        os.dup2(2, 1)  # a library may print
        for line in sys.stdin.buffer:
            for answer in scribe.answers(msgspec.json.decode(line, type=Request)):
                output.write(msgspec.json.encode(answer) + b"\n")


if __name__ == "__main__":
    main()
