"""Processor time that a plan of crews takes, for machines and pieces of random figures that are the same in every run.

The model is a layered network of some 200 million parameters; machines of 2 to 8 GB hold a part of it each.
"""

import argparse
import random
import sys
import time

import msgspec
from measure import Machine as Measured
from measure import describe_machine, print_report

from fedlearn.graphs.pieces import Piece
from fedlearn.graphs.planning.crews import Machine
from fedlearn.graphs.planning.parts import ModelCosts, Needs
from fedlearn.graphs.planning.planner import plan

NEEDS = Needs(parameter_bytes=48, members=8)


class Cost(msgspec.Struct, frozen=True):
    """Of planning for so many machines."""

    machines: int
    cpu_s: float
    """The least of some repeats."""
    seats: list[int]
    """Of each crew."""
    members_per_s: float


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    machine: Measured
    pieces: int
    costs: list[Cost]


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description="How long a plan of crews takes.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--machines", type=int, nargs="+", default=[6, 8, 12, 24, 100], metavar="N", help="in turn")
    parser.add_argument("--pieces", type=int, default=200, metavar="N", help="of the model (default: 200)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of each plan (default: 3)")
    options = parser.parse_args()
    model = random_model(options.pieces)
    costs = [measure(model, count, options.repeats) for count in options.machines]
    report = Report("planner", describe_machine(), options.pieces, costs)
    print_report(report, lambda: table(report), as_json=options.json)
    return 0


def table(report: Report) -> str:
    """For people."""
    lines = [f"{'machines':>8}  {'CPU s':>6}  {'members/s':>9}  seats of each crew"]
    for cost in report.costs:
        seats = " ".join(map(str, cost.seats))
        lines.append(f"{cost.machines:>8}  {cost.cpu_s:>6.2f}  {cost.members_per_s:>9.3g}  {seats}")
    return "\n".join(lines)


def random_model(n_pieces: int) -> ModelCosts:
    """Tensors of a million numbers on average, and activations of up to a megabyte."""
    chance = random.Random(n_pieces)
    sizes = {f"t{number}": chance.randint(10**5, 2 * 10**6) for number in range(n_pieces)}
    pieces = [
        Piece(range(number, number + 1), (name,), 64.0 * size, chance.randint(10**5, 10**6), 10**6)
        for number, (name, size) in enumerate(sizes.items())
    ]
    return ModelCosts(pieces, sizes, {})


def random_machines(count: int) -> list[Machine]:
    """Lines of 20 to 1000 Mbps, processors of 10 to 100 GFLOPS."""
    chance = random.Random(count)
    return [
        Machine(str(number), chance.uniform(2e9, 8e9), chance.uniform(2.5e6, 1.25e8), chance.uniform(5e9, 5e10))
        for number in range(count)
    ]


def measure(model: ModelCosts, count: int, repeats: int) -> Cost:
    """Plans for so many machines again and again."""
    machines, took = random_machines(count), list[float]()
    for _ in range(repeats):
        begun = time.process_time()
        found = plan(model, machines, NEEDS)
        took.append(time.process_time() - begun)
    return Cost(count, min(took), [len(crew.seats) for crew in found.crews], found.members_per_s)


if __name__ == "__main__":
    sys.exit(main())
