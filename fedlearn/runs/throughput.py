"""How fast this machine is when nothing else slows it down, measured for half a second before a run begins."""

import time
from collections.abc import Callable
from typing import final

import es_core
from fedlearn.config import RunConfig
from fedlearn.es.replica import genesis
from fedlearn.es.strategy import Strategy
from fedlearn.es.trials import Trials
from fedlearn.tasks.blocks import Columns, block_name
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.objective import Objective

MEASURE_S = 0.5
"""Seconds after which no further trials begin."""

ROUND_S = 0.02
"""The longest evaluation: some of many short ones have the processor to themselves."""

SLOW_S = 20.0
"""Trials that take longer are not repeated. The first ones are slower than all others, by seconds on a busy machine
where PyTorch loads what it needs."""


def threads_of(config: RunConfig) -> tuple[int, int]:
    """Threads of each local volunteer, and how many of those volunteers the processors can run at once.

    It is one thread where there are no local volunteers.
    """
    processors, settings = es_core.usable_processors(), config.volunteers
    if settings.volunteers == 0:
        return 1, 1
    each = min(settings.threads or processors, processors)
    return each, max(min(settings.volunteers, processors // each), 1)


@final
class Throughput:
    """Measures the speed of all local volunteers of a run: the speed of one, times their number."""

    def __init__(self, config: RunConfig, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._threads, self._n_volunteers = threads_of(config)
        self._clock = clock

    def __call__(self, objective: Objective, strategy: Strategy, data: Columns) -> float:
        """Members per second: the best of many evaluations, so that cold starts and other programs do not count."""
        block = block_name(data)
        holding = Holding(objective, seed=0, threads=self._threads, blocks={block: data})
        holding.load(genesis(objective.layout, objective.initial_weights()))
        began = self._clock()
        best = self._members_per_s(holding, block, strategy, strategy.group_size)
        if self._clock() - began > SLOW_S:
            return best
        n_members, began = strategy.group_size, self._clock()
        while self._clock() - began <= MEASURE_S:
            speed = self._members_per_s(holding, block, strategy, n_members)
            best = max(best, speed)
            if self._n_volunteers * n_members / speed < ROUND_S / 2:
                n_members *= 2
        return best

    def _members_per_s(self, holding: Holding, block: bytes, strategy: Strategy, n_members: int) -> float:
        trials = Trials(0, strategy.perturbation, strategy.group_size, 0, n_members)
        started = self._clock()
        holding.evaluate(trials, block)
        return self._n_volunteers * n_members / max(self._clock() - started, 1e-9)
