"""How well a run learns in a given time: bits per character along the way, and n-gram models of the same text.

The real path in one process: coordinator, worker, both replicas, journal and wire, with memory in place of sockets.
Time spent on validation does not count. The server's own replica takes its steps on the same processors as the
volunteer's trials, so `--threads 1` is all of a run on one core. Held to: below 3.6 bits per character after 60 seconds
on tinyshakespeare (https://github.com/karpathy/char-rnn, data/tinyshakespeare/input.txt).
"""

import argparse
import sys
import tempfile

import msgspec
import numpy as np
from measure import Machine, Stopwatch, describe_machine, print_report, use_processors

from fedlearn.app.run import Run, create
from fedlearn.app.swarm import Swarm
from fedlearn.app.trainer import Trainer
from fedlearn.config import ConfigError, RunConfig, add_config_flags, load_config
from fedlearn.storage.datasets import Dataset
from fedlearn.text.tokens import TokenArray

TARGET_BITS_PER_CHARACTER = 3.6

LOOKS = (0, 1 / 60, 1 / 30, 1 / 12, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 5 / 6, 1)
"""Shares of the time after which validation is measured: early on, learning is fast."""


class Look(msgspec.Struct, frozen=True):
    """Where the run stood."""

    seconds: float
    steps: int
    trial_tokens: int
    validation_bits_per_character: float


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    machine: Machine
    config: RunConfig
    looks: list[Look]
    final_bits_per_character: float
    trial_tokens_per_s: float
    target_bits_per_character: float
    baselines_bits_per_character: dict[str, float]
    """n-gram models with add-one smoothing, counted on the training split and measured on the validation split."""


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description="How well a run learns in a given time.")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="s to train (default: 60)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_config_flags(parser)
    options = parser.parse_args()
    try:
        # A figure must not depend on the environment: flags only.
        config = load_config(None, {}, vars(options))
        use_processors(config.threads)
        with tempfile.TemporaryDirectory() as folder:
            if "runs" not in options:
                config = msgspec.structs.replace(config, runs=folder)
            run = create(config)
            looks = train(run, options.seconds)
    except (ConfigError, ValueError, ImportError) as error:
        print(f"learning.py: {error}", file=sys.stderr)
        return 1
    report = Report(
        benchmark="learning",
        machine=describe_machine(),
        config=config,
        looks=looks,
        final_bits_per_character=looks[-1].validation_bits_per_character,
        trial_tokens_per_s=looks[-1].trial_tokens / max(looks[-1].seconds, 1e-9),
        target_bits_per_character=TARGET_BITS_PER_CHARACTER,
        baselines_bits_per_character={
            name: run.dataset.validation.bits_per_character(ngram_loss(run.dataset, n))
            for n, name in ((1, "unigram"), (2, "bigram"), (3, "trigram"))
        },
    )
    print_report(report, lambda: table(report), as_json=options.json)
    return 0


def train(run: Run, seconds: float) -> list[Look]:
    """Trains a new run for this time, through a swarm of one volunteer, or until it ends."""
    trainer, _ = Trainer.open(run)
    watch = Stopwatch()
    swarm = Swarm(trainer, watch.seconds)
    swarm.join("benchmark", threads=run.config.threads)
    looks = []
    for share in LOOKS:
        watch.start()
        while watch.seconds() < share * seconds and swarm.ended is None:
            swarm.advance()
        watch.stop()
        members = sum(step.members for step in swarm.metrics)
        weights = trainer.replica.weights
        looks.append(
            Look(
                seconds=watch.seconds(),
                steps=len(swarm.metrics),
                trial_tokens=members * run.objective.tokens_per_member,
                validation_bits_per_character=run.validation_bits_per_character(weights, threads=run.config.threads),
            )
        )
    trainer.close()
    return looks


def ngram_loss(dataset: Dataset, n: int) -> float:
    """Mean nats per validation token of an n-gram model with add-one smoothing, counted on the training split."""
    vocab_size = dataset.tokenizer.vocab_size
    seen, read = (_ngrams(text.tokens, n, vocab_size) for text in (dataset.train, dataset.validation))
    n_whole = _count(seen, read)
    n_context = _count(seen // vocab_size, read // vocab_size)
    return float(-np.log((n_whole + 1) / (n_context + vocab_size)).mean())


def _ngrams(tokens: TokenArray, n: int, vocab_size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Each run of n tokens as one number whose last digit, to the base of `vocab_size`, is its last token."""
    length = len(tokens) - n + 1
    codes = np.zeros(length, dtype=np.int64)
    for place in range(n):
        codes = codes * vocab_size + tokens[place : place + length]
    return codes


def _count(seen: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """How often each wanted code was seen."""
    codes, counts = np.unique(seen, return_counts=True)
    places = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
    return np.where(codes[places] == wanted, counts[places], 0)


def table(report: Report) -> str:
    """The report for people."""
    machine, config = report.machine, report.config
    lines = [
        f"{machine.processor}, {machine.instruction_set}, {config.threads or machine.usable_processors} thread(s); "
        f"{config.data}, hidden {config.hidden_size}, population {config.population_limit}",
        f"{'seconds':>8} {'steps':>7} {'trial-tokens':>14} {'validation bits/character':>27}",
    ]
    lines += [
        f"{look.seconds:8.1f} {look.steps:7} {look.trial_tokens:14,} {look.validation_bits_per_character:27.3f}"
        for look in report.looks
    ]
    reached = next(
        (f"{x.seconds:.1f} s" for x in report.looks if x.validation_bits_per_character < TARGET_BITS_PER_CHARACTER),
        "not reached",
    )
    baselines = ", ".join(f"{name} {bits:.3f}" for name, bits in report.baselines_bits_per_character.items())
    lines += [
        f"final: {report.final_bits_per_character:.3f} bits per character, "
        f"{report.trial_tokens_per_s / 1e6:.2f} M trial-tokens/s",
        f"seen below {TARGET_BITS_PER_CHARACTER} after: {reached}",
        f"n-gram models of the same split (add-one): {baselines}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
