"""Whether a step became slower: the same run of this version and of another checkout, by turns.

Each turn is a run of real processes, `server.py` with its local volunteer. Both versions must find the same losses.
Wall time is what people wait; processor time, of server and volunteer together, hardly depends on what else the machine
does. The other checkout must be set up as its README says: its own `.venv` runs it.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec
from measure import SETTINGS, Machine, Spread, describe_machine, print_report, ratio, spread
from rnn_run import SCHEMA, Settings
from version_turn import HERE, Turn, take_turn

from fedlearn.config import add_config_flags, flag_of


class Figure(msgspec.Struct, frozen=True):
    """One quantity of both versions, in ms a step."""

    name: str
    this_ms: Spread
    other_ms: Spread
    this_over_other: Spread
    """Round by round."""
    least_over_least: float
    """The best turn of each."""


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    machine: Machine
    other: str
    settings: Settings
    """Given to both; everything else has its default."""
    rounds: int
    steps: int
    figures: list[Figure]


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description="Time of a step in this version and in another, by turns.")
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=12, metavar="N", help="runs of each version (default: 12)")
    add_config_flags(parser, SCHEMA)
    options = parser.parse_args()
    settings = settings_of(options)
    try:
        turns = compare(options.other.absolute(), settings, rounds=options.rounds)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"versions.py: {error}", file=sys.stderr)
        return 1
    report = Report(
        benchmark="versions",
        machine=describe_machine(),
        other=options.other.name,
        settings=settings,
        rounds=options.rounds,
        steps=int(settings["steps"]),
        figures=figures_of(turns),
    )
    print_report(report, lambda: table(report), as_json=options.json)
    return 0


def settings_of(options: argparse.Namespace) -> Settings:
    """What both servers are told: nothing is left to their choice, and nothing but steps happens."""
    given = {key: value for key, value in vars(options).items() if key in SCHEMA.fields}
    alone: Settings = {"volunteers": 1, "threads": 1, "port": 0, "sample_time": 0.0, "checkpoint_time": 1e9}
    return {**SETTINGS, "time_per_step": 60.0, "steps": 60, **alone, **given}


def compare(other: Path, settings: Settings, *, rounds: int) -> list[tuple[Turn, Turn]]:
    """The turns of this and the other version in each round; every second round begins with the other one.

    Raises:
        RuntimeError: a server fails, or the two do not find the same losses.
        ValueError: the other checkout can't run.
    """
    flags = [text for key, value in settings.items() if key != "runs" for text in (flag_of(key), str(value))]
    runs = str(settings["runs"]) if "runs" in settings else None
    found: list[tuple[Turn, Turn]] = []
    for number in range(rounds):
        turns: list[Turn] = []
        for checkout in [HERE, other][:: 1 if number % 2 == 0 else -1]:
            with tempfile.TemporaryDirectory(dir=runs) as folder:
                turns.append(take_turn(checkout, [*flags, "--runs", folder], Path(folder)))
        this, that = turns[:: 1 if number % 2 == 0 else -1]
        _check_losses(this.losses, that.losses, settings)
        found.append((this, that))
    return found


def _check_losses(this: list[float], other: list[float], settings: Settings) -> None:
    # Sums of gradients are rounded a slice at a time, and where slices end is a matter of speed.
    is_summed = settings.get("perturb") == "activations" or settings.get("head") == "closed-form"
    n_steps = 1 if is_summed else len(this)
    for step, (ours, theirs) in enumerate(zip(this[:n_steps], other[:n_steps], strict=True)):
        if ours != theirs:
            raise RuntimeError(f"losses: expected the same in both versions, got {ours} and {theirs} in step {step}")


def figures_of(turns: list[tuple[Turn, Turn]]) -> list[Figure]:
    """Wall time of the usual step, and processor time of all of them."""
    quantities = {
        "median step": [(this.median_ms, other.median_ms) for this, other in turns],
        "quickest steps": [(this.least_ms, other.least_ms) for this, other in turns],
        "processor": [(this.processor_ms, other.processor_ms) for this, other in turns],
    }
    figures = []
    for name, pairs in quantities.items():
        this, other = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        figures.append(Figure(name, spread(this), spread(other), ratio(this, other), min(this) / min(other)))
    return figures


def table(report: Report) -> str:
    """The report for people: medians, with quartiles in brackets."""
    machine = report.machine
    lines = [
        f"{machine.processor}, {machine.instruction_set}; {report.rounds} runs of {report.steps} steps each, "
        f"hidden {report.settings['hidden_size']}, population {report.settings['population_limit']}",
        f"  {'ms a step':14} {'this':>24} {'other':>24} {'this / other':>24} {'least / least':>14}",
    ]
    lines += [
        f"  {figure.name:14} {figure.this_ms.show(2):>24} {figure.other_ms.show(2):>24} "
        f"{figure.this_over_other.show(3):>24} {figure.least_over_least:14.3f}"
        for figure in report.figures
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
