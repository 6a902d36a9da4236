"""What a step costs beside its trials where a model is large, in time and in memory.

Held to: a step is noise of members times rows and columns, and a few passes over the weights; the digest must not
dominate it. Times are also given in passes, copies of the weights by one thread in the same round. With one thread,
seconds are those of the processor, so that other programs which share it do not count.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from large_model import LargeModel, Shape, noise_numbers, one_pass
from measure import Machine, Spread, alternate, describe_machine, print_report, ratio, spread
from scaling import STATUS

from fedlearn.es.layout import ParameterLayout
from fedlearn.es.snapshot import Snapshot
from fedlearn.wire.encoding.codec import decode, encode

SHAPES = {
    "1e6": Shape(4096, 128, 3),
    "1e7": Shape(16384, 256, 8),
    "1e8": Shape(20480, 768, 12),
    "1e9": Shape(98304, 2048, 16),
}
HUGE = "1e9"
"""Of which there is no room for moments and snapshots in 24 GB."""

MEMBERS = 64
ONE_PASS = "one pass over the weights"


class Part(msgspec.Struct, frozen=True):
    """Something that a step or a joiner needs."""

    name: str
    threads: int
    ms: Spread
    passes: Spread


class Memory(msgspec.Struct, frozen=True):
    """The most that a process of its own held over two steps and a digest, beyond Python and numpy."""

    optimizer: str
    threads: int
    peak_mib: float | None
    """Null where the system does not tell."""


class Size(msgspec.Struct, frozen=True):
    """All figures of one model."""

    n_parameters: int
    weights_mib: float
    noise_numbers: int
    """Of one member."""
    parts: list[Part]
    memory: list[Memory]


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    machine: Machine
    rounds: int
    members: list[int]
    sizes: list[Size]


def measure_size(name: str, options: argparse.Namespace) -> Size:
    """All figures of the model of that name."""
    layout = SHAPES[name].layout()
    optimizers = ("sgd",) if name == HUGE else ("adam", "sgd")
    parts: list[Part] = []
    for threads in options.threads:
        calls = calls_of(layout, optimizers, options.members, threads)
        clock = time.process_time if threads == 1 else time.perf_counter
        seconds = alternate(calls, rounds=options.rounds, clock=clock)
        parts += [
            Part(part, threads, spread([s * 1e3 for s in found]), ratio(found, seconds[ONE_PASS]))
            for part, found in seconds.items()
        ]
    return Size(
        n_parameters=layout.size,
        weights_mib=4 * layout.size / 2**20,
        noise_numbers=noise_numbers(layout),
        parts=parts,
        memory=[measure_memory(name, optimizer, threads) for optimizer in optimizers for threads in options.threads],
    )


def calls_of(
    layout: ParameterLayout, optimizers: tuple[str, ...], members: list[int], threads: int
) -> dict[str, Callable[[], object]]:
    """A call for each part."""
    models = {name: LargeModel(layout, name, threads=threads) for name in optimizers}
    some = models[optimizers[0]]
    calls: dict[str, Callable[[], object]] = {ONE_PASS: one_pass(some.replica.weights), "genesis": some.genesis}
    for n in members:
        calls[f"noise of {n} members"] = partial(some.noise, n)
        calls[f"gradient estimate of {n} members"] = partial(some.estimate, n)
    for name, model in models.items():
        calls[f"{name}: step without members"] = partial(model.step, 0)
        calls |= {f"{name}: step of {n} members": partial(model.step, n) for n in members}
        calls[f"{name}: digest"] = model.digest
        if threads == 1:
            calls[f"{name}: digest, BLAKE2b"] = model.blake2b
    if threads == 1 and len(models) > 1:
        calls |= snapshot_calls(some)
    return calls


def snapshot_calls(model: LargeModel) -> dict[str, Callable[[], object]]:
    """A joiner's Snapshot, both ways."""
    snapshot = model.replica.snapshot()
    payload = encode(snapshot)
    return {"Snapshot: encode": lambda: encode(snapshot), "Snapshot: decode": lambda: decode(payload, Snapshot)}


def measure_memory(name: str, optimizer: str, threads: int) -> Memory:
    """In a process of its own."""
    command = [sys.executable, __file__, "--sizes", name, "--threads", str(threads), "--peak-with", optimizer]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return Memory(optimizer, threads, msgspec.json.decode(done.stdout, type=float | None))


def peak_mib_of(name: str, optimizer: str, threads: int) -> float | None:
    """Of this process, beyond what it held before."""
    before = _peak_mib()
    model = LargeModel(SHAPES[name].layout(), optimizer, threads=threads)
    for _ in range(2):
        model.step(MEMBERS)
        model.digest()
    after = _peak_mib()
    return after - before if before is not None and after is not None else None


def _peak_mib() -> float | None:
    if not STATUS.exists():
        return None
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description="What a step costs beside its trials where a model is large.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--sizes", nargs="+", choices=SHAPES, default=["1e7", "1e8"], help="parameters (default: 1e7 1e8)"
    )
    parser.add_argument("--huge", action="store_true", help=f"{HUGE}, too: 16 GB of memory and some minutes")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N", help="in turn (default: 1 2)")
    parser.add_argument(
        "--members", type=int, nargs="+", default=[MEMBERS, 512], metavar="N", help="of a step (default: 64 512)"
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="alternating rounds (default: 5)")
    parser.add_argument("--peak-with", metavar="OPTIMIZER", help="print this process's peak MiB of the first size")
    options = parser.parse_args()
    if options.peak_with:
        print(msgspec.json.encode(peak_mib_of(options.sizes[0], options.peak_with, options.threads[0])).decode())
        return 0
    sizes = list(dict.fromkeys([*options.sizes, *([HUGE] if options.huge else [])]))
    report = Report(
        benchmark=Path(__file__).stem,
        machine=describe_machine(),
        rounds=options.rounds,
        members=options.members,
        sizes=[measure_size(name, options) for name in sizes],
    )
    print_report(report, lambda: table(report), as_json=options.json)
    return 0


def table(report: Report) -> str:
    """The report for people: medians, with quartiles in brackets."""
    machine = report.machine
    lines = [f"{machine.processor}, {machine.instruction_set}; {report.rounds} rounds"]
    for size in report.sizes:
        lines += [
            "",
            f"{size.n_parameters:,} parameters, {size.weights_mib:.0f} MiB; noise of a member at rank 1: "
            f"{size.noise_numbers:,} numbers, one for {size.n_parameters / size.noise_numbers:.0f} parameters",
            f"  {'':34} {'threads':>7} {'ms':>28} {'passes over the weights':>26}",
        ]
        lines += [
            f"  {part.name:34} {part.threads:7} {part.ms.show(1):>28} {part.passes.show(2):>26}" for part in size.parts
        ]
        for memory in size.memory:
            shown = "not measured"
            if memory.peak_mib is not None:
                shown = f"{memory.peak_mib:.0f} MiB, {memory.peak_mib / size.weights_mib:.1f} times the weights"
            lines.append(f"  peak memory of steps with {memory.optimizer}, {memory.threads} threads: {shown}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
