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

import msgspec
import numpy as np

import es_core
from benchmarks.kernels.peaks import DOT, FMA, build_loops
from benchmarks.kernels.trial import SIGMA, Trial, default_population
from benchmarks.measure import TURN_S, Spread, alternate, parser_of, print_tables, ratio, spread, use_processors

try:
    import torch

    from benchmarks.kernels.torch_peers import DENSE_MEMBERS, Peers

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

Call = Callable[[], object]


class Contestant(msgspec.Struct, frozen=True):
    """One way to evaluate a network."""

    hidden_size: int
    name: str
    million_tokens_per_s: Spread
    share_of_product_peak: Spread
    share_of_fma_peak: Spread | None
    """None without a C compiler."""
    ours_is_faster_by: Spread
    """The rate of our kernel, in the instruction set in use, over this one's."""


class Update(msgspec.Struct, frozen=True):
    """What gradient estimate and Adam cost beside the evaluation."""

    hidden_size: int
    estimate_ms: Spread
    adam_ms: Spread
    token_evaluations_per_member: Spread
    """Time of both together, in tokens that our kernel evaluates in it."""
    ps_per_member_and_parameter: Spread
    share_of_dot_product_peak: Spread | None
    """Two operations a member and parameter of the estimate, beside a loop of int8 dot products; None without."""


class Peak(msgspec.Struct, frozen=True):
    """What the machine reaches with nothing else to do, on all threads."""

    hidden_size: int
    """Of the network that was measured in the same rounds."""
    product_gflops: Spread
    fma_gflops: Spread | None


def measure_size(trial: Trial, options: argparse.Namespace) -> tuple[list[Contestant], Update, Peak]:
    """All figures of one network, and the machine's limits in the same rounds."""
    vocab_size, hidden_size, _ = trial.shape
    evaluations = contestants_of(trial, options)
    products, loops = peak_products(), build_loops()
    for isa in other_isas(options):
        loops |= {f"{FMA}, {isa}": loop for name, loop in build_loops(isa).items() if name == FMA}
    calls: dict[str, Call] = {
        **products,
        **{name: call for name, (call, _) in (loops | evaluations).items()},
        "estimate": trial.estimate,
        "adam": trial.take_adam_step,
    }
    clock = time.process_time if options.threads == 1 else time.perf_counter
    seconds = alternate(calls, rounds=options.rounds, turn_s=TURN_S, clock=clock)
    limit = {name: [options.threads * loops[name][1] / s for s in seconds[name]] for name in loops}
    dot = limit.pop(DOT, [])
    product = [2 * PEAK_SIZE**3 / min(each) for each in zip(*(seconds[name] for name in products), strict=True)]
    rates = {name: [n_tokens / s for s in seconds[name]] for name, (_, n_tokens) in evaluations.items()}
    flops = {name: [2 * hidden_size * (hidden_size + vocab_size) * rate for rate in rates[name]] for name in rates}
    contestants = [
        Contestant(
            hidden_size,
            name,
            spread([rate / 1e6 for rate in rates[name]]),
            ratio(flops[name], product),
            ratio(flops[name], fma) if fma else None,
            ratio(rates[OURS], rates[name]),
        )
        for name in rates
        for fma in [limit.get(name.replace(OURS, FMA), limit.get(FMA))]
    ]
    both = [estimate + adam for estimate, adam in zip(seconds["estimate"], seconds["adam"], strict=True)]
    numbers = trial.population * trial.layout.size
    update = Update(
        hidden_size,
        spread([s * 1e3 for s in seconds["estimate"]]),
        spread([s * 1e3 for s in seconds["adam"]]),
        ratio(rates[OURS], [trial.population / s for s in both]),
        spread([s * 1e12 / numbers for s in both]),
        ratio([2 * numbers / s for s in seconds["estimate"]], dot) if dot else None,
    )
    fma = [one / 1e9 for one in limit.get(FMA, [])]
    return contestants, update, Peak(hidden_size, spread([one / 1e9 for one in product]), spread(fma) if fma else None)


def contestants_of(trial: Trial, options: argparse.Namespace) -> dict[str, tuple[Call, int]]:
    """Each way to evaluate the trial's members, with the tokens that a call evaluates; ours comes first."""
    ours: dict[str, Call] = {
        OURS: trial.evaluate,
        f"{OURS}, int8": partial(trial.evaluate, int8=True),
        f"{OURS}, activations with gradient": trial.gradient_of_activations,
        f"{OURS}, documents": partial(trial.evaluate, reset_token=RESETTING),
        f"{OURS}, documents, int8": partial(trial.evaluate, int8=True, reset_token=RESETTING),
        f"{OURS}, documents, activations": partial(trial.gradient_of_activations, RESETTING),
    }
    if options.threads > 1:
        ours[f"{OURS}, one thread"] = partial(trial.evaluate, threads=1)
    ours |= {f"{OURS}, {isa}": partial(trial.evaluate_with, isa) for isa in other_isas(options)}
    evaluations = {name: (call, trial.n_tokens) for name, call in ours.items()}
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


def peak_products() -> dict[str, Call]:
    """Square matrix products in float32 by the libraries that are installed."""
    left = np.random.default_rng(1).standard_normal((PEAK_SIZE, PEAK_SIZE), dtype=np.float32)
    right = left.T.copy()
    out = np.empty_like(left)
    products: dict[str, Call] = {"product, numpy": lambda: np.matmul(left, right, out=out)}
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
    parser = parser_of(__doc__)
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of everything (default: 1)")
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 256, 1024], metavar="N", help="hidden sizes")
    parser.add_argument("--population", type=int, metavar="N", help="members (default: 4096 to 512, by hidden size)")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="alternating rounds (default: 9)")
    parser.add_argument("--vocabulary", type=int, default=65, metavar="N", help="tokens to predict (default: 65)")
    parser.add_argument("--sequence-length", type=int, default=32, metavar="N", help="tokens a member (default: 32)")
    parser.add_argument("--group-size", type=int, default=64, metavar="N", help="members that share text (default: 64)")
    parser.add_argument("--rank", type=int, default=1, metavar="N", help="rank of our noise (default: 1)")
    parser.add_argument("--all-isas", action="store_true", help="every instruction set of this processor, not only v3")
    options = parser.parse_args()
    if options.threads < 1:
        parser.error(f"--threads: expected at least 1, got {options.threads}")
    use_processors(options.threads, **ENVIRONMENT)
    if TORCH is not None:
        torch.set_num_threads(options.threads)
    found = [measure_size(trial_of(hidden_size, options), options) for hidden_size in options.hidden]
    names = ("threads", "rounds", "vocabulary", "sequence_length", "group_size", "rank")
    print_tables(
        "kernel",
        as_json=options.json,
        facts={name: getattr(options, name) for name in names} | {"PyTorch": TORCH},
        contestants=[contestant for contestants, _, _ in found for contestant in contestants],
        updates=[update for _, update, _ in found],
        peaks=[peak for _, _, peak in found],
    )
    return 0


def trial_of(hidden_size: int, options: argparse.Namespace) -> Trial:
    """A network of this size with its population."""
    return Trial(
        (options.vocabulary, hidden_size, 1),
        population=options.population or default_population(hidden_size),
        sequence_length=options.sequence_length,
        group_size=options.group_size,
        rank=options.rank,
        threads=options.threads,
    )


if __name__ == "__main__":
    sys.exit(main())
