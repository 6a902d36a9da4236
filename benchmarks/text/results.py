"""What the learning benchmark found."""

from collections.abc import Iterable
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
    """Bits on validation and test, by n-gram models with add-one smoothing that were counted on the training part."""


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
    """The configuration of the last seed, from which a peer takes model, text and windows."""
    runs: list[SeedRun]

    @property
    def name(self) -> str:
        return f"{self.recipe}, server" if self.through_server else self.recipe


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

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
