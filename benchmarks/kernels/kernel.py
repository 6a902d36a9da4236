"""Trial-tokens per second of the evaluation kernel in its precisions, noises and instruction sets.

All take turns, and every ratio is the median of ratios within a round.

A turn of a contestant is as many calls as fill TURN_S: a run calls ours again and again with little else between. With
one thread, seconds are those of the processor, so that other programs which share it do not count.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial

import msgspec

import es_core
from benchmarks.kernels.trial import Trial, default_population
from benchmarks.measure import TURN_S, Spread, alternate, parser_of, print_tables, ratio, spread, use_processors

OURS = "ours"
RESETTING = 0
"""The token that ends a document, one of as many as the vocabulary has."""

Call = Callable[[], object]


class Contestant(msgspec.Struct, frozen=True):
    """One way to evaluate a network."""

    hidden_size: int
    name: str
    million_tokens_per_s: Spread
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


def measure_size(trial: Trial, options: argparse.Namespace) -> tuple[list[Contestant], Update]:
    """All figures of one network."""
    hidden_size = trial.shape[1]
    evaluations = contestants_of(trial, options)
    calls: dict[str, Call] = {**evaluations, "estimate": trial.estimate, "adam": trial.take_adam_step}
    clock = time.process_time if options.threads == 1 else time.perf_counter
    seconds = alternate(calls, rounds=options.rounds, turn_s=TURN_S, clock=clock)
    rates = {name: [trial.n_tokens / s for s in seconds[name]] for name in evaluations}
    contestants = [
        Contestant(hidden_size, name, spread([rate / 1e6 for rate in rates[name]]), ratio(rates[OURS], rates[name]))
        for name in rates
    ]
    both = [estimate + adam for estimate, adam in zip(seconds["estimate"], seconds["adam"], strict=True)]
    return contestants, Update(
        hidden_size,
        spread([s * 1e3 for s in seconds["estimate"]]),
        spread([s * 1e3 for s in seconds["adam"]]),
        ratio(rates[OURS], [trial.population / s for s in both]),
        spread([s * 1e12 / (trial.population * trial.layout.size) for s in both]),
    )


def contestants_of(trial: Trial, options: argparse.Namespace) -> dict[str, Call]:
    """Each way to evaluate the trial's members; the usual one comes first."""
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
    return ours


def other_isas(options: argparse.Namespace) -> list[str]:
    """Instruction sets to measure beside the one in use: the widest that came before, or all."""
    others = [isa for isa in es_core.supported_isas() if isa != es_core.current_isa()]
    return others if options.all_isas else [isa for isa in others if isa == "v3"]


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
    use_processors(options.threads)
    found = [measure_size(trial_of(hidden_size, options), options) for hidden_size in options.hidden]
    names = ("threads", "rounds", "vocabulary", "sequence_length", "group_size", "rank")
    print_tables(
        "kernel",
        as_json=options.json,
        facts={name: getattr(options, name) for name in names},
        contestants=[contestant for contestants, _ in found for contestant in contestants],
        updates=[update for _, update in found],
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
