"""The Update that follows from the losses of a step."""

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.attempts import Attempt, attempt_after, attempt_of_search
from fedlearn.es.schedules import progress
from fedlearn.es.shaping import UTILITY_RESOLUTION, Shaping, n_counted, spread_of
from fedlearn.es.strategy.population import Population
from fedlearn.es.strategy.settings import Strategy
from fedlearn.es.sums.estimate import NO_ESTIMATE, CodedEstimate
from fedlearn.es.sums.moments import Int64Array, renormalization_of
from fedlearn.es.update import Update

Float32Array = NDArray[np.float32]

SPREAD_DECAY = 0.9
"""Weight of earlier steps in the running spread of losses."""


def tell(
    strategy: Strategy,
    population: Population,
    *,
    block: bytes,
    spans: tuple[tuple[int, int], ...],
    losses: Float32Array,
    duration_s: float,
    estimate: CodedEstimate = NO_ESTIMATE,
    moments: Int64Array | None = None,
) -> Update:
    """The Update that follows from these losses (float32, span after span).

    The learning rate follows the number of members that count, so that a step that was cut short is not too large.
    `duration_s` is how long the step was open. `estimate` is the sum of the volunteers' estimates, where they sent
    some: those of a summed perturbation, or exact sums, with which the utilities need not travel. `moments` are those
    of what members observed, [groups, numbers of each], where volunteers report some.
    """
    spread = spread_of(losses, population.group_size)
    scale = population.shaping_scale or spread
    n_members = max(n_counted(losses, population.group_size), 1)
    perturbation = population.perturbation
    if perturbation.is_summed:
        utilities = np.zeros(0, dtype=np.int8)
        gradient_scale = population.group_size / (n_members * 2.0**perturbation.unit_bits)
    else:
        replayed = losses[:0] if estimate.is_there else losses
        shaping = Shaping(strategy.fitness_shaping, scale)
        # Members of a search without data have all seen the same function, those of groups of rows have not.
        compared = shaping.utilities_of_all if strategy.optimizer.searches and not block else shaping.utilities
        utilities = compared(replayed, population.group_size)
        # The gradient of the loss: a lower loss has a higher utility, hence the sign.
        gradient_scale = -scale / (UTILITY_RESOLUTION * n_members * perturbation.sigma)
    return Update(
        step=population.step,
        block=block,
        spans=spans,
        utilities=utilities,
        rank=0 if perturbation.is_summed else perturbation.rank,
        group_size=population.group_size,
        gradient_scale=gradient_scale,
        optimizer=population.optimizer
        if perturbation.local_steps is not None
        else population.optimizer.scaled(strategy.growth.factor_of(n_members)),
        antithetic=perturbation.antithetic,
        weight_decay=population.weight_decay,
        decay_towards=strategy.decay_towards,
        elapsed_s=population.elapsed_s + duration_s,
        shaping_scale=SPREAD_DECAY * scale + (1.0 - SPREAD_DECAY) * spread if spread > 0.0 else scale,
        estimate=estimate,
        renormalization=None if moments is None else renormalization_of(moments, population.observed),
        attempt=_attempt_after(strategy, population, losses, population.elapsed_s + duration_s),
    )


def search_end(strategy: Strategy, last: Update | None) -> str:
    """Why a search is over after this Update; empty where it is not, and for what is no search."""
    attempt = last.attempt if last is not None and strategy.optimizer.searches else None
    if attempt is None or attempt.number <= strategy.attempts.restarts + 1:
        return ""
    return f"the search is at its end: members' losses no longer differ from {attempt.smoothed:.6g}"


def _attempt_after(
    strategy: Strategy, population: Population, losses: Float32Array, elapsed_s: float
) -> Attempt | None:
    """The attempt after a step with these losses; their median can't be moved far by a few false ones."""
    finite, of_search = losses[np.isfinite(losses)], strategy.optimizer.searches
    judges = of_search or strategy.attempts.restarts > 0
    if not judges or not finite.size or not population.perturbation.has_noise:
        return population.attempt
    last, attempts, step = population.attempt, strategy.attempts, population.step
    is_last = progress(strategy.schedule, step + 1, elapsed_s) >= 1.0
    if of_search:
        return attempt_of_search(last, attempts, step=step, losses=finite, is_last=is_last)
    return attempt_after(last, attempts, step=step, loss=float(np.median(finite)), is_last=is_last)
