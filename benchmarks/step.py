"""Where the time of a step goes, with one volunteer: its parts measured alone, then whole steps of real processes.

A volunteer waits for the parts *in turn*: its trials, its Result on the way, the server's shaping and journal, the
Update on the way back, and its own replica's step. The server's replica takes the same step *beside* it. Held to: at
hidden size 64 and a population of 12,000, everything but evaluation and gradient estimate takes at most 15 ms. `--runs`
chooses the disk that the journal is on. Last come the shares of a step of a server and a volunteer on one core.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec
from measure import SETTINGS, Machine, Spread, describe_machine, print_report
from rnn_run import SCHEMA, Settings, config_of, flat
from step_in_process import Share, lines_of, measure_in_process
from step_parts import Part, measure_parts, message_bytes, prepare
from whole_steps import WholeSteps, measure_whole_steps

from fedlearn.config import ConfigError, RunConfig, add_config_flags
from fedlearn.storage.durable import StorageError

TARGET_MS = 15.0


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    machine: Machine
    config: Settings
    n_parameters: int
    bytes_up: int
    bytes_down: int
    parts: list[Part]
    sum_of_everything_else_ms: float
    """Of the parts that are waited for."""
    whole_steps: WholeSteps | None
    target_ms: float
    in_process: list[Share]
    """Of a step of server and volunteer on one core."""


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description="Where the time of a step goes, with one volunteer of one thread.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="measurements of each part (default: 30)")
    parser.add_argument(
        "--whole-steps", type=int, default=100, metavar="N", help="steps of real processes; 0 = none (default: 100)"
    )
    parser.add_argument(
        "--in-process-steps", type=int, default=100, metavar="N", help="steps on one core; 0 = none (default: 100)"
    )
    add_config_flags(parser, SCHEMA)
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(dir=vars(options).get("runs")) as folder:
            config = config_of(SETTINGS | vars(options)).replace({"runs": folder})
            report = measure(config, options)
    except (ConfigError, StorageError, ValueError, RuntimeError, OSError) as error:
        print(f"step.py: {error}", file=sys.stderr)
        return 1
    print_report(report, lambda: table(report), as_json=options.json)
    return 0


def measure(config: RunConfig, options: argparse.Namespace) -> Report:
    """All of the benchmark."""
    contents = prepare(config)
    parts = measure_parts(contents, Path(config.run.runs), options.rounds)
    bytes_up, bytes_down = message_bytes(contents)
    return Report(
        benchmark="step",
        machine=describe_machine(),
        config=flat(config),
        n_parameters=contents.run.objective.layout.size,
        bytes_up=bytes_up,
        bytes_down=bytes_down,
        parts=parts,
        sum_of_everything_else_ms=sum(part.ms.median * part.in_turn for part in parts if part.kind == "else"),
        whole_steps=measure_whole_steps(config, options.whole_steps) if options.whole_steps else None,
        target_ms=TARGET_MS,
        in_process=measure_in_process(config, options.in_process_steps) if options.in_process_steps else [],
    )


def table(report: Report) -> str:
    """The report for people: medians, with quartiles in brackets."""

    def show(figures: Spread) -> str:
        return f"{figures.median:.3f} [{figures.low:.3f}, {figures.high:.3f}] ms"

    machine, config = report.machine, report.config
    lines = [
        f"{machine.processor}, {machine.instruction_set}; hidden {config['hidden_size']}, {report.n_parameters} "
        f"parameters, population {config['population_limit']}, {report.bytes_up} bytes up, {report.bytes_down} down",
        f"  {'part':42} {'in turn':>8}   median [quartiles]",
    ]
    lines += [
        f"  {part.name:42} {f'{part.in_turn} x' if part.in_turn else 'beside':>8}   {show(part.ms)}"
        for part in sorted(report.parts, key=lambda part: part.kind == "else")
    ]
    lines.append(f"everything but evaluation and estimate, summed: {report.sum_of_everything_else_ms:.2f} ms")
    if report.whole_steps is not None:
        whole = report.whole_steps
        lines += [
            f"whole steps of real processes on loopback ({whole.steps}): {show(whole.period_ms)}",
            f"  evaluation {show(whole.evaluation_ms)}, gradient estimate {show(whole.estimate_ms)}",
            f"  everything else {show(whole.everything_else_ms)}; held to {report.target_ms:.0f} ms",
        ]
    return "\n".join([*lines, *lines_of(report.in_process)])


if __name__ == "__main__":
    sys.exit(main())
