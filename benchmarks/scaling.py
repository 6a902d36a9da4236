"""What threads gain and what members cost: speed of all threads over one, and peak memory of a large population.

Only our kernels run in this process: elsewhere the waiting threads of a matrix library would share the processors.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from measure import TURN_S, Machine, Spread, alternate, describe_machine, print_report, ratio
from trial import Trial, default_population

import es_core

STATUS = Path("/proc/self/status")
"""Where Linux tells the most memory that a process held; its counterpart in `resource` starts at the parent's."""


class Speedup(msgspec.Struct, frozen=True):
    """All threads over one, turn by turn."""

    hidden_size: int
    population: int
    evaluation: Spread
    int8_evaluation: Spread
    estimate: Spread


class Memory(msgspec.Struct, frozen=True):
    """The most that a process of its own held while it evaluated a population and estimated its gradient."""

    population: int
    peak_mib: float | None
    """Python and numpy included; null where the system does not tell."""


class Scaling(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    machine: Machine
    threads: int
    rounds: int
    speedups: list[Speedup]
    memory: list[Memory]


def measure_speedup(hidden_size: int, options: argparse.Namespace) -> Speedup:
    """One hidden size; the populations are those of `kernel.py`."""
    trials = {n: make_trial(hidden_size, default_population(hidden_size), n) for n in (1, options.threads)}
    calls: dict[tuple[str, int], Callable[[], object]] = {}
    for n, trial in trials.items():
        calls |= {
            ("evaluation", n): trial.evaluate,
            ("int8_evaluation", n): partial(trial.evaluate, int8=True),
            ("estimate", n): trial.estimate,
        }
    seconds = alternate(calls, rounds=options.rounds, turn_s=TURN_S)
    gains = {
        what: ratio(seconds[what, 1], seconds[what, options.threads])
        for what in ("evaluation", "int8_evaluation", "estimate")
    }
    return Speedup(hidden_size=hidden_size, population=trials[1].population, **gains)


def make_trial(hidden_size: int, population: int, threads: int) -> Trial:
    """The network of `kernel.py`, with its defaults."""
    return Trial(
        (65, hidden_size, 1), population=population, sequence_length=32, group_size=64, rank=1, threads=threads
    )


def measure_memory(population: int, options: argparse.Namespace) -> Memory:
    """In a process of its own, at the first hidden size."""
    command = [sys.executable, __file__, "--memory-of", str(population)]
    command += ["--hidden", str(options.hidden[0]), "--threads", str(options.threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return Memory(population, msgspec.json.decode(done.stdout, type=float | None))


def peak_mib_of(population: int, options: argparse.Namespace) -> float | None:
    """Of this process, after a step's work for the population."""
    trial = make_trial(options.hidden[0], population, options.threads)
    trial.evaluate()
    trial.estimate()
    if not STATUS.exists():
        return None
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description="Gain of threads, and memory of large populations.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="compared with one (default: all)")
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 256, 1024], metavar="N", help="hidden sizes")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="alternating rounds (default: 15)")
    parser.add_argument(
        "--populations", type=int, nargs="+", default=[10_000, 1_000_000], metavar="N", help="whose memory to measure"
    )
    parser.add_argument("--memory-of", type=int, metavar="N", help="print this process's peak MiB for N members")
    options = parser.parse_args()
    options.threads = options.threads or es_core.usable_processors()
    if options.memory_of:
        print(msgspec.json.encode(peak_mib_of(options.memory_of, options)).decode())
        return 0
    scaling = Scaling(
        benchmark="scaling",
        machine=describe_machine(),
        threads=options.threads,
        rounds=options.rounds,
        speedups=[measure_speedup(hidden_size, options) for hidden_size in options.hidden if options.threads > 1],
        memory=[measure_memory(population, options) for population in options.populations],
    )
    print_report(scaling, lambda: table(scaling), as_json=options.json)
    return 0


def table(scaling: Scaling) -> str:
    """The report for people: medians, with quartiles in brackets."""
    lines = [f"{scaling.threads} threads over one, nothing else in the process:"] if scaling.speedups else []
    lines += [
        f"  hidden {size.hidden_size:4}: evaluation {size.evaluation.show(2)}, "
        f"int8 {size.int8_evaluation.show(2)}, estimate {size.estimate.show(2)}"
        for size in scaling.speedups
    ]
    lines.append("peak memory of a process that evaluates a population and estimates its gradient:")
    for memory in scaling.memory:
        shown = "not measured" if memory.peak_mib is None else f"{memory.peak_mib:.1f} MiB"
        lines.append(f"  {memory.population:9,} members: {shown}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
