"""Trial-tokens per second of the evaluation kernel, beside what the machine and PyTorch can do, in alternating rounds.

Every ratio is the median of ratios within a round. Shares count `2 * (hidden**2 + hidden * vocabulary)` operations a
token against the best matrix product of 1024 x 1024 that numpy and PyTorch reach here, and against what a loop of
multiply-adds reaches: matrix libraries do not get near it on every processor. The loop is compiled for the instruction
set that the row uses, and for the whole processor beside PyTorch. Inference is the same network with unperturbed
weights.

A turn of a contestant is as many calls as fill TURN_S: a run calls ours again and again with little else between. With
one thread, seconds are those of the processor, so that other programs which share it do not count.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from measure import (
    TURN_S,
    Machine,
    Spread,
    alternate,
    describe_machine,
    print_report,
    ratio,
    run_aside,
    spread,
    use_processors,
)
from peaks import DOT, FMA, build_loops
from scaling import Scaling
from scaling import table as scaling_table
from trial import SIGMA, Trial, default_population

import es_core

try:
    import torch
    from torch_peers import DENSE_MEMBERS, Peers

    TORCH: str | None = str(torch.__version__)
except ImportError:
    TORCH = None

PEAK_SIZE = 1024
OURS = "ours"
RESETTING = 0
"""The token that ends a document, one of as many as the vocabulary has."""

ENVIRONMENT = {
    # glibc keeps freed memory: fresh pages for every temporary would cost the peers a third of their speed.
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    # Threads that wait for their next product would otherwise spin through the next contestant's turn.
    "OMP_WAIT_POLICY": "PASSIVE",
    "OPENBLAS_THREAD_TIMEOUT": "4",
}


class Contestant(msgspec.Struct, frozen=True):
    """One way to evaluate the network."""

    name: str
    million_tokens_per_s: Spread
    share_of_product_peak: Spread
    share_of_fma_peak: Spread | None
    ours_is_faster_by: Spread
    """Our rate, in the instruction set in use, over this one's."""


class Update(msgspec.Struct, frozen=True):
    """What gradient estimate and Adam cost beside the evaluation."""

    estimate_ms: Spread
    adam_ms: Spread
    token_evaluations_per_member: Spread
    """Of both together, in tokens that our kernel evaluates in the same time."""
    ps_per_member_and_parameter: Spread
    share_of_dot_product_peak: Spread | None
    """Of the estimate: two operations a member and parameter, beside a loop of int8 dot products; null without."""


class Size(msgspec.Struct, frozen=True):
    """All figures of one hidden size."""

    hidden_size: int
    population: int
    contestants: list[Contestant]
    update: Update


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    machine: Machine
    threads: int
    rounds: int
    vocab_size: int
    sequence_length: int
    group_size: int
    rank: int
    torch: str | None
    """Version of PyTorch; null where it is not installed and its rows are missing."""
    product_peak_gflops: Spread
    fma_peak_gflops: Spread | None
    """Of one core, times the threads; null without a C compiler."""
    sizes: list[Size]
    scaling: Scaling | None
    """Gain of threads and memory of populations, measured before all else in a process without PyTorch."""


class Peaks(msgspec.Struct, frozen=True):
    """The machine's limits in each round, flop/s."""

    product: list[float]
    fma: dict[str, list[float]]
    """By our instruction sets that run, empty without a C compiler."""
    dot: list[float]


def measure_size(trial: Trial, options: argparse.Namespace) -> tuple[Size, Peaks]:
    """All figures of one hidden size, and the peaks in the same rounds."""
    evaluations = contestants_of(trial, options)
    products, loops = peak_products(), build_loops()
    for isa in other_isas(options):
        loops |= {f"{FMA}, {isa}": loop for name, loop in build_loops(isa).items() if name == FMA}
    limits = products | {name: call for name, (call, _) in loops.items()}
    calls: dict[str, Callable[[], object]] = {name: call for name, (call, _) in evaluations.items()}
    seconds = alternate(
        {**limits, **calls, "estimate": trial.estimate, "adam": trial.take_adam_step},
        rounds=options.rounds,
        turn_s=TURN_S,
        clock=time.process_time if options.threads == 1 else time.perf_counter,
    )
    limit = {name: [options.threads * loops[name][1] / s for s in seconds[name]] for name in loops}
    best = zip(*(seconds[name] for name in products), strict=True)
    dot = limit.pop(DOT, [])
    peaks = Peaks(product=[2 * PEAK_SIZE**3 / min(product) for product in best], fma=limit, dot=dot)
    rates = {name: [n_tokens / s for s in seconds[name]] for name, (_, n_tokens) in evaluations.items()}
    vocab_size, hidden_size, _ = trial.shape
    flops_per_token = 2 * hidden_size * (hidden_size + vocab_size)
    contestants = [
        Contestant(
            name=name,
            million_tokens_per_s=spread([rate / 1e6 for rate in rates[name]]),
            share_of_product_peak=ratio([rate * flops_per_token for rate in rates[name]], peaks.product),
            share_of_fma_peak=ratio([rate * flops_per_token for rate in rates[name]], fma_peak) if fma_peak else None,
            ours_is_faster_by=ratio(rates[OURS], rates[name]),
        )
        for name in rates
        for fma_peak in [limit.get(name.replace(OURS, FMA), limit.get(FMA))]
    ]
    estimate_operations = 2 * trial.population * trial.layout.size
    both = [estimate + adam for estimate, adam in zip(seconds["estimate"], seconds["adam"], strict=True)]
    update = Update(
        estimate_ms=spread([s * 1e3 for s in seconds["estimate"]]),
        adam_ms=spread([s * 1e3 for s in seconds["adam"]]),
        token_evaluations_per_member=ratio(rates[OURS], [trial.population / s for s in both]),
        ps_per_member_and_parameter=spread([s * 1e12 / trial.population / trial.layout.size for s in both]),
        share_of_dot_product_peak=ratio([estimate_operations / s for s in seconds["estimate"]], dot) if dot else None,
    )
    return Size(hidden_size, trial.population, contestants, update), peaks


def contestants_of(trial: Trial, options: argparse.Namespace) -> dict[str, tuple[Callable[[], object], int]]:
    """Each way to evaluate the trial's members, with the tokens that a call evaluates; ours comes first."""
    evaluations: dict[str, tuple[Callable[[], object], int]] = {
        OURS: (trial.evaluate, trial.n_tokens),
        f"{OURS}, int8": (partial(trial.evaluate, int8=True), trial.n_tokens),
        f"{OURS}, activations with gradient": (trial.gradient_of_activations, trial.n_tokens),
        f"{OURS}, documents": (partial(trial.evaluate, reset_token=RESETTING), trial.n_tokens),
        f"{OURS}, documents, int8": (partial(trial.evaluate, int8=True, reset_token=RESETTING), trial.n_tokens),
        f"{OURS}, documents, activations": (partial(trial.gradient_of_activations, RESETTING), trial.n_tokens),
    }
    if options.threads > 1:
        evaluations[f"{OURS}, one thread"] = partial(trial.evaluate, threads=1), trial.n_tokens
    for isa in other_isas(options):
        evaluations[f"{OURS}, {isa}"] = partial(trial.evaluate_with, isa), trial.n_tokens
    if TORCH is not None:
        check_peers(trial)
        for name, peer in Peers(trial.layout, trial.weights, trial.rows, SIGMA).contestants.items():
            n_members = min(DENSE_MEMBERS, trial.population) if "dense" in name else trial.population
            evaluations[f"PyTorch {name}"] = (peer, n_members * options.sequence_length)
    return evaluations


def other_isas(options: argparse.Namespace) -> list[str]:
    """Instruction sets to measure beside the one in use: the widest that came before, or all."""
    others = [isa for isa in es_core.supported_isas() if isa != es_core.current_isa()]
    return others if options.all_isas else [isa for isa in others if isa == "v3"]


def peak_products() -> dict[str, Callable[[], object]]:
    """Square matrix products in float32 by the libraries that are installed."""
    left = np.random.default_rng(1).standard_normal((PEAK_SIZE, PEAK_SIZE), dtype=np.float32)
    right = left.T.copy()
    out = np.empty_like(left)
    products: dict[str, Callable[[], object]] = {"product, numpy": lambda: np.matmul(left, right, out=out)}
    if TORCH is not None:
        tensors = [torch.from_numpy(array) for array in (left, right, out)]
        products["product, PyTorch"] = lambda: torch.mm(tensors[0], tensors[1], out=tensors[2])
    return products


def check_peers(trial: Trial) -> None:
    """Compares the losses of all contestants without noise.

    Raises:
        RuntimeError: they differ.
    """
    expected = trial.evaluate(sigma=0.0)
    for name, peer in Peers(trial.layout, trial.weights, trial.rows, 0.0).contestants.items():
        losses = peer().numpy()
        if not np.allclose(losses, expected[: len(losses)], atol=1e-4):
            raise RuntimeError(f"{name}: expected our losses, e.g. {expected[0]}, got {losses[0]}")


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description="Trial-tokens per second of the evaluation kernel.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of everything (default: 1)")
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 256, 1024], metavar="N", help="hidden sizes")
    parser.add_argument("--population", type=int, metavar="N", help="members (default: 4096 to 512, by hidden size)")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="alternating rounds (default: 9)")
    parser.add_argument("--vocabulary", type=int, default=65, metavar="N", help="tokens to predict (default: 65)")
    parser.add_argument("--sequence-length", type=int, default=32, metavar="N", help="tokens a member (default: 32)")
    parser.add_argument("--group-size", type=int, default=64, metavar="N", help="members that share text (default: 64)")
    parser.add_argument("--rank", type=int, default=1, metavar="N", help="rank of our noise (default: 1)")
    parser.add_argument("--all-isas", action="store_true", help="every instruction set of this processor, not only v3")
    parser.add_argument("--no-scaling", action="store_true", help="leave out threads and memory, see scaling.py")
    parser.add_argument(
        "--populations", type=int, nargs="+", default=[10_000, 1_000_000], metavar="N", help="whose memory to measure"
    )
    options = parser.parse_args()
    if options.threads < 1:
        parser.error(f"--threads: expected at least 1, got {options.threads}")
    use_processors(options.threads, **ENVIRONMENT)
    scaling = None
    if not options.no_scaling:
        arguments = ["--json", "--hidden", *map(str, options.hidden), "--populations", *map(str, options.populations)]
        scaling = msgspec.json.decode(run_aside(Path(__file__).with_name("scaling.py"), *arguments), type=Scaling)
    if TORCH is not None:
        torch.set_num_threads(options.threads)
    sizes, product_peak, fma_peak = [], [], []
    for hidden_size in options.hidden:
        trial = Trial(
            (options.vocabulary, hidden_size, 1),
            population=options.population or default_population(hidden_size),
            sequence_length=options.sequence_length,
            group_size=options.group_size,
            rank=options.rank,
            threads=options.threads,
        )
        size, peaks = measure_size(trial, options)
        sizes.append(size)
        product_peak += [flops / 1e9 for flops in peaks.product]
        fma_peak += [flops / 1e9 for flops in peaks.fma.get(FMA, [])]
    report = Report(
        benchmark="kernel",
        machine=describe_machine(),
        threads=options.threads,
        rounds=options.rounds,
        vocab_size=options.vocabulary,
        sequence_length=options.sequence_length,
        group_size=options.group_size,
        rank=options.rank,
        torch=TORCH,
        product_peak_gflops=spread(product_peak),
        fma_peak_gflops=spread(fma_peak) if fma_peak else None,
        sizes=sizes,
        scaling=scaling,
    )
    print_report(report, lambda: table(report), as_json=options.json)
    return 0


def table(report: Report) -> str:
    """The report for people: medians, with quartiles in brackets."""

    def show(figures: Spread | None, digits: int) -> str:
        return "not measured" if figures is None else figures.show(digits)

    machine = report.machine
    lines = [
        f"{machine.processor}, {machine.instruction_set}, {report.threads} thread(s), {report.rounds} rounds, "
        f"vocabulary {report.vocab_size}, T={report.sequence_length}, group {report.group_size}, rank {report.rank}",
        f"peak of matrix products {show(report.product_peak_gflops, 1)} GFLOP/s, "
        f"of multiply-adds {show(report.fma_peak_gflops, 1)} GFLOP/s",
        f"PyTorch {report.torch}" if report.torch else "PyTorch is not installed: no peers",
    ]
    for size in report.sizes:
        lines += [
            "",
            f"hidden {size.hidden_size}, population {size.population}",
            f"  {'':28} {'M tokens/s':>24} {'of product peak':>20} {'of multiply-adds':>20} {'ours is faster by':>20}",
        ]
        lines += [
            f"  {contestant.name:28} {show(contestant.million_tokens_per_s, 4):>24} "
            f"{show(contestant.share_of_product_peak, 2):>20} {show(contestant.share_of_fma_peak, 2):>20} "
            f"{show(contestant.ours_is_faster_by, 2):>20}"
            for contestant in size.contestants
        ]
        update = size.update
        lines.append(
            f"  update: estimate {show(update.estimate_ms, 2)} ms, Adam {show(update.adam_ms, 3)} ms; together "
            f"{show(update.token_evaluations_per_member, 2)} token evaluations a member, "
            f"{show(update.ps_per_member_and_parameter, 2)} ps a member and parameter; the estimate reaches "
            f"{show(update.share_of_dot_product_peak, 2)} of int8 dot products"
        )
    if report.scaling is not None:
        lines += ["", scaling_table(report.scaling)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
