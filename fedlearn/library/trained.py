"""A run in Python: its weights, its metrics, and what it writes."""

import sys
import warnings
from collections.abc import Mapping
from functools import cached_property
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec
import numpy as np

from fedlearn.es.layout import Float32Array
from fedlearn.es.replica import Replica
from fedlearn.library.progress import is_watched
from fedlearn.runs import run as runs_on_disk
from fedlearn.runs.best import Step, number_of
from fedlearn.runs.export import Format, HeldWeights, export
from fedlearn.runs.history import rebuilt_at
from fedlearn.runs.plot import Axis, figure
from fedlearn.runs.replaying import replaying
from fedlearn.runs.run import Run, load_run_config
from fedlearn.storage.logs.columns import columns_of
from fedlearn.storage.logs.lines import read_lines
from fedlearn.storage.logs.metrics import StepMetrics, each_once
from fedlearn.storage.runs import resolve_run
from fedlearn.tasks.kind import TextExaminer
from fedlearn.tasks.task import Task
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.terminal.bars import Bars
from fedlearn.text.beam_search import Search
from fedlearn.text.language_model import last_of
from fedlearn.text.sampling import Manner
from fedlearn.text.writing import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@final
class Trained:
    """A run: its weights by name, step, folder and settings."""

    def __init__(self, run: Run, replica: Replica) -> None:
        self._run, self._flat = run, replica.weights
        self.digest: str = replica.digest.hex()
        """The digest of weights and optimizer state, as the server and every volunteer had them after the last step."""
        self.step: int = replica.step
        """Number of steps taken."""
        self.folder: Path = run.folder.path
        named = zip(replica.layout.tensors, replica.layout.split(self._flat).items(), strict=True)
        self.weights: Mapping[str, Float32Array] = dict(entry for spec, entry in named if spec.statistic != "factor")
        """The trained tensors by name, float32."""
        self.settings: Mapping[str, Any] = msgspec.to_builtins(run.config)
        """The run's settings in groups, as in `config.json`."""

    @cached_property
    def figures(self) -> dict[str, float]:
        """Metrics of the weights on held-out data; empty without such data, or if the task's code is not here."""
        return self._run.prepared.examiner.validate(self._flat, threads=0)

    @property
    def losses(self) -> list[float | None]:
        """Mean loss of the middle groups of each step; of one that was taken again after a crash, the last one."""
        return [metrics.loss for metrics in each_once(read_lines(self._run.folder.metrics, StepMetrics))]

    def metrics(self) -> Any:  # noqa: ANN401 (pandas may not be here)
        """The run's `metrics.jsonl` as a table: a column for each figure, a row for each step.

        It is a pandas DataFrame if pandas is installed, else a dictionary of numpy arrays; `run.metrics()["loss"]`
        works in either case.
        """
        columns = columns_of(read_lines(self._run.folder.metrics, StepMetrics))
        if find_spec("pandas") is None:
            return columns
        import pandas

        return pandas.DataFrame(columns)

    def plot(self, *, over: Axis = "steps") -> "Figure":
        """The loss over steps, seconds or work as a matplotlib figure: a notebook shows it, `savefig` writes it.

        Raises:
            ValueError: matplotlib is missing, or the run has no step yet.
        """
        drawn = figure([self._run.folder], axis=over)

        def as_png() -> bytes:
            buffer = BytesIO()
            drawn.savefig(buffer, format="png")
            return buffer.getvalue()

        drawn._repr_png_ = as_png  # for notebooks, which know only figures of pyplot
        return drawn

    def export(self, path: str | Path | None = None, form: Format | None = None) -> Path:
        """Writes the weights for PyTorch (safetensors) or ONNX, or the metrics as CSV, and gives the file's path.

        The path's ending chooses the format; without a path the file is `run-<number>` in the working directory. Notes
        about the file come as warnings.

        Raises:
            ValueError: the model can't be exported in this format.
            StorageError: the file can't be written.
        """
        held = HeldWeights(self._flat, self.step, self.digest)
        done = export(self._run, Path(path) if path is not None else None, form, held=held)
        for note in done.notes:
            warnings.warn(note, stacklevel=2)
        return done.path

    def sample(
        self,
        prompt: str = "",
        *,
        length: int = 200,
        beams: int = 0,
        seed: int | None = None,
        **manner: float,
    ) -> str:
        """The prompt, followed by at most `length` tokens that the model writes.

        Random sampling takes `temperature`, `top_k`, `top_p`, `repetition_penalty` and the `seed` of random choices.
        With `beams` the text is the likeliest that a beam search finds, which takes `length_penalty`. Both take
        `no_repeat_ngram`. All mean the same as the flags of `fedlearn sample`.

        Raises:
            ValueError: the model does not write text, or an argument is unknown or out of its range.
        """
        examiner = self._run.prepared.examiner
        if not isinstance(examiner, TextExaminer):
            raise ValueError(
                f"run {self.folder.name}: expected a model that writes text, got another; look at its figures instead"
            )
        rules = Search if beams else Manner
        if unknown := sorted(set(manner) - set(rules.__struct_fields__)):
            known = ", ".join(rules.__struct_fields__)
            raise ValueError(f"{unknown[0]}: expected one of {known} {'with' if beams else 'without'} beams")
        tokenizer, model = examiner.tokenizer, examiner.language_model(self._flat)
        tokens = tokenizer.encode(prompt)
        steps = written(
            model,
            tokens,
            length=length,
            n_beams=beams or None,
            given=manner,
            characters_per_token=examiner.characters_per_token,
            generator=np.random.default_rng(seed),
        )
        return prompt + tokenizer.decode(last_of(steps).tokens)

    def __repr__(self) -> str:
        n_parameters = sum(array.size for array in self.weights.values())
        return f"Trained({self.step} steps, {n_parameters} parameters, in {str(self.folder)!r})"


def load(
    run: str | int | Path = "latest",
    *,
    runs: str | Path = "trainingRuns",
    task: Task | None = None,
    step: Step = None,
    progress: bool | None = None,
) -> Trained:
    """The present state of a run: its number in the folder `runs`, "latest", or the path of its folder.

    `step` is another one whose weights are wanted: its number, or "best" for the one that did best when the run looked
    at its weights, by the greatest return or accuracy, else the least loss.

    A run folder can name a task's code, which is never executed; pass the `task` to have its metrics. The steps since
    the newest checkpoint are replayed; `progress` shows how far that is, by default in a terminal or notebook.

    Raises:
        StorageError: there is no such run, or its files are damaged.
        ValueError: the task is not the run's, or nothing was measured that tells which step is best.
    """
    folder = resolve_run(Path(runs), str(run))
    named = NamedTask(task, f"a task of kind {task.kind}", source=b"") if task is not None else None
    found = runs_on_disk.load(folder, load_run_config(folder), task=named)
    is_shown = is_watched() if progress is None else progress
    until, bars = number_of(found, step), Bars(stream=sys.stdout, quiet=not is_shown, redrawn=True)
    with replaying(bars, found, until=until) as progress_of_replay:
        rebuilt = rebuilt_at(found, until, progress=progress_of_replay)
    for problem in rebuilt.problems:
        warnings.warn(problem, stacklevel=2)
    return Trained(found, rebuilt.holding.replica)
