"""Exports runs for other programs: weights for PyTorch or ONNX, figures as a table."""

import csv
import io
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from fedlearn.es.layout import Float32Array
from fedlearn.runs.history import StepDone, rebuilt_at
from fedlearn.runs.run import Run, lacks_code
from fedlearn.storage.durable import write_durably
from fedlearn.storage.logs.columns import columns_of
from fedlearn.storage.logs.lines import read_lines
from fedlearn.storage.logs.metrics import StepMetrics

Format = Literal["safetensors", "onnx", "csv"]

FORMATS: tuple[Format, ...] = ("safetensors", "onnx", "csv")


class ExportedFile(msgspec.Struct, frozen=True):
    """A file that was written."""

    path: Path
    content: str
    """A phrase that describes the content."""
    notes: tuple[str, ...] = ()
    """Sentences about the file that its user should know."""


def format_of(path: Path | None) -> Format:
    """The format of a path, by its ending.

    Raises:
        ValueError: no format has this ending.
    """
    if path is None:
        return "safetensors"
    for form in FORMATS:
        if path.suffix == f".{form}":
            return form
    raise ValueError(
        f"{path}: expected a name that ends in {', '.join(f'.{form}' for form in FORMATS)}; or give the format"
    )


class HeldWeights(NamedTuple):
    """The weights of a step that the caller holds, so that they need not be rebuilt."""

    flat: Float32Array
    step: int
    digest: str


def export(
    run: Run,
    path: Path | None = None,
    form: Format | None = None,
    *,
    step: int | None = None,
    held: HeldWeights | None = None,
    progress: StepDone | None = None,
) -> ExportedFile:
    """Writes the weights that are `held`, else the run's at a step, by default the newest, or the figures of all steps,
    in a format, which by default the ending of `path` says.

    Without a path the file is `run-<name>` with the format's ending, in the working directory.

    Raises:
        ValueError: the run's model cannot be written in this format.
        StorageError: a file cannot be read or written.
    """
    form = form or format_of(path)
    path = path or Path(f"run-{run.folder.path.name}.{form}")
    if form == "csv":
        payload, n_lines = table(run.folder.metrics)
        write_durably(path, payload)
        return ExportedFile(path, f"the figures of {n_lines} steps")
    problems: tuple[str, ...] = ()
    if held is None:
        rebuilt = rebuilt_at(run, step, progress=progress)
        replica, problems = rebuilt.holding.replica, rebuilt.problems
        held = HeldWeights(replica.weights, replica.step, replica.digest.hex())
    about = {"run": run.folder.path.name, "step": str(held.step), "digest": held.digest}
    payload, notes = weights_as(run, held.flat, form, about)
    write_durably(path, payload)
    names = {"safetensors": "the state_dict", "onnx": "one step of the model"}
    return ExportedFile(path, f"{names[form]}, with the weights of step {held.step}", (*problems, *notes))


def weights_as(
    run: Run, weights: Float32Array, form: Literal["safetensors", "onnx"], about: dict[str, str]
) -> tuple[bytes, tuple[str, ...]]:
    """The bytes of a file of these weights, and notes about it.

    Raises:
        ValueError: the model cannot be written in this format.
    """
    examiner = run.prepared.examiner
    note = (
        "the task's code was not named (--task FILE.py:NAME, in Python task=): only what was learned is in the file; "
        "use load_state_dict(..., strict=False)"
    )
    make = {"safetensors": examiner.state_dict, "onnx": examiner.onnx}[form]
    return make(weights, about), (note,) if lacks_code(run) else ()


def table(metrics: Path) -> tuple[bytes, int]:
    """`metrics.jsonl` as CSV with a header, and its number of steps; a figure that a step lacks is left empty."""
    columns = {name: column.tolist() for name, column in columns_of(read_lines(metrics, StepMetrics)).items()}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow("" if value != value else value for value in row)  # NaN alone is not equal to itself
    return text.getvalue().encode(), len(columns["step"])
