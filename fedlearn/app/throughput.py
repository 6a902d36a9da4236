"""How fast this machine is, measured in the time of a blink before a run begins."""

import time
from collections.abc import Callable

import msgspec

import es_core
from fedlearn.config import RunConfig
from fedlearn.es.strategy import Strategy
from fedlearn.objectives import Objective
from fedlearn.objectives.base import Trials, run_trials
from fedlearn.recipe import REFERENCE_HIDDEN_SIZE
from fedlearn.storage.datasets import Dataset

MEASURE_S = 0.1
"""After which no further trials begin; the last ones take about as long again."""

_MAX_WINDOW = 64
"""Tokens of context, and scored ones: speed hardly depends on more, and a measurement must be short."""

_MAX_GROUP_SIZE = 64


def probe_of(config: RunConfig) -> RunConfig:
    """The configuration with trials that are quick to measure, of the reference size; not settled yet."""
    return msgspec.structs.replace(
        config,
        hidden_size=REFERENCE_HIDDEN_SIZE,
        batch_size=1,
        context=min(config.context, _MAX_WINDOW),
        sequence_length=min(config.sequence_length, _MAX_WINDOW),
        group_size=min(config.group_size, _MAX_GROUP_SIZE),
        population_limit=0,
        max_population=0,
    )


def threads_of(config: RunConfig) -> int:
    """Threads of all local volunteers together, as far as there are processors; one where there is no volunteer."""
    processors = es_core.usable_processors()
    return min(max(config.volunteers * (config.threads or processors), 1), processors)


def measure_throughput(
    objective: Objective,
    strategy: Strategy,
    dataset: Dataset,
    *,
    threads: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Trial-tokens per second: the best of ever larger evaluations, so that a cold start does not count."""
    weights = objective.initial_weights(dataset.unigram_counts)
    best, n_members, began = 0.0, strategy.group_size, clock()
    while True:
        trials = Trials(0, strategy.perturbation, strategy.group_size, 0, n_members)
        started = clock()
        run_trials(objective, weights, dataset.train.tokens, trials, threads=threads)
        ended = clock()
        best = max(best, n_members * objective.tokens_per_member / max(ended - started, 1e-9))
        if ended - began > MEASURE_S:
            return best
        n_members *= 2
