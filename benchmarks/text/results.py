"""What the learning benchmark found: one report, which later runs add to."""

from collections.abc import Iterable
from pathlib import Path
from statistics import mean

import msgspec

from benchmarks.measure import Machine
from benchmarks.text.learner import Budget, SeedRun
from benchmarks.text.rnn_run import Settings


class Text(msgspec.Struct, frozen=True):
    """What was learned from; results on different texts can't be compared."""

    name: str
    train_characters: int
    validation_characters: int
    test_characters: int
    baselines_bits_per_character: dict[str, tuple[float, float]]
    """On validation and test: n-gram models with add-one smoothing, counted on the training part."""


class Result(msgspec.Struct, frozen=True):
    """A recipe at the end of a budget, once a seed."""

    recipe: str
    budget: Budget
    through_server: bool
    machine: Machine
    threads: int
    """0: all processors."""
    settings: Settings
    """What the recipe changes in the configuration; of a peer all settings."""
    config: Settings
    """Of the last seed. A peer takes model, text and windows from it."""
    runs: list[SeedRun]

    @property
    def key(self) -> tuple[str, bool, int, int, str, float]:
        """What a later result with the same key replaces."""
        budget, hidden_size = self.budget, int(self.config["hidden_size"])
        return self.recipe, self.through_server, hidden_size, self.threads, budget.unit, budget.amount

    @property
    def name(self) -> str:
        return f"{self.recipe}, server" if self.through_server else self.recipe


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`, and saved."""

    benchmark: str
    text: Text
    results: list[Result]
    notices: list[str]
    """What was left out, and why."""


class Figure(msgspec.Struct, frozen=True):
    """Mean, least and greatest over the seeds."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def over_seeds(values: Iterable[float]) -> Figure:
    """The figure of one value a seed."""
    found = list(values)
    return Figure(mean(found), min(found), max(found))


def saved_results(path: Path, text: Text) -> list[Result]:
    """The results in the file; none if there is no file.

    Raises:
        ValueError: the file holds something else, or results on another text.
    """
    if not path.exists():
        return []
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=Report)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: expected results of this benchmark: {error}; move the file away") from error
    if saved.text != text:
        raise ValueError(
            f"{path}: expected results on {text.name}, found {saved.text.name}, or another split of it; "
            "save to another folder"
        )
    return saved.results


def save(path: Path, report: Report) -> Report:
    """Adds the report's results to those in the file, in place of those with the same key; gives all of them.

    Raises:
        ValueError: the file can't be read by `saved_results`.
    """
    results = {result.key: result for result in (*saved_results(path, report.text), *report.results)}
    merged = msgspec.structs.replace(report, results=[results[key] for key in sorted(results)], notices=[])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(merged), indent=1) + b"\n")
    return merged


def table(report: Report) -> str:
    """The report for people."""
    text = report.text
    parts = text.train_characters, text.validation_characters, text.test_characters
    baselines = ", ".join(
        f"{name} {validation:.3f} / {test:.3f}"
        for name, (validation, test) in text.baselines_bits_per_character.items()
    )
    lines = [
        f"{text.name}: {' / '.join(f'{n:,}' for n in parts)} characters to train on, for validation and for tests",
        f"bits per character of n-gram models (add-one), validation / test: {baselines}",
    ]
    if report.results:
        lines.append(
            f"{'recipe':24} {'hidden':>6} {'threads':>7} {'budget':>19} {'seeds':>5} {'validation':>22} {'test':>22} "
            f"{'trial-tokens':>13} {'seconds':>8}"
        )
    for result in report.results:
        ends = [run.looks[-1] for run in result.runs]
        validation = over_seeds(run.validation_bits_per_character for run in result.runs)
        test = over_seeds(run.test_bits_per_character for run in result.runs)
        lines.append(
            f"{result.name:24} {result.config['hidden_size']:6} "
            f"{result.threads or result.machine.usable_processors:7} {result.budget!s:>19} {len(result.runs):5} "
            f"{validation!s:>22} {test!s:>22} {mean(end.trial_tokens for end in ends):13.3g} "
            f"{mean(end.seconds for end in ends):8.1f}"
        )
    return "\n".join([*lines, *report.notices])
