"""The strategy as ask and tell: what to try in a step, and what the losses make of it.

Source: Salimans et al., "Evolution Strategies as a Scalable Alternative to Reinforcement Learning", arXiv 1703.03864;
low-rank perturbations as in EGGROLL, arXiv 2511.16652.
"""

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.schedules import Schedule, learning_rate_factor, sigma_factor
from fedlearn.es.shaping import SHAPINGS, UTILITY_RESOLUTION, Method, n_counted, spread_of
from fedlearn.es.update import Update

Float32Array = NDArray[np.float32]

ADAM_EPSILON = 1e-8
SPREAD_DECAY = 0.9
"""How much of the running spread of losses survives a step."""


class Strategy(msgspec.Struct, frozen=True):
    """The choices of a run that make losses into steps; its only state travels in the Updates themselves."""

    sigma: float
    """Before its schedule, as `learning_rate`."""
    rank: int
    group_size: int
    population_limit: int
    learning_rate: float
    optimizer: Literal["adam", "sgd"]
    beta1: float
    beta2: float
    fitness_shaping: Method
    antithetic: bool = False
    weight_decay: float = 0.0
    schedule: Schedule = Schedule()


class Population(msgspec.Struct, frozen=True):
    """What one step asks for: perturbations of this size and rank, in whole groups, up to a limit."""

    step: int
    sigma: float
    rank: int
    group_size: int
    antithetic: bool
    limit: int
    """Members, a multiple of `group_size`."""
    learning_rate: float
    elapsed_s: float
    """Seconds for which the steps before this one were open."""
    shaping_scale: float
    """Running standard deviation of losses within groups, before this step; 0 when nothing is known yet."""


def ask(strategy: Strategy, step: int, last: Update | None) -> Population:
    """The population of `step`, given the Update before it (None at the first step of a run)."""
    elapsed_s = last.elapsed_s if last is not None else 0.0
    return Population(
        step=step,
        sigma=strategy.sigma * sigma_factor(strategy.schedule, step, elapsed_s),
        rank=strategy.rank,
        group_size=strategy.group_size,
        antithetic=strategy.antithetic,
        limit=strategy.population_limit // strategy.group_size * strategy.group_size,
        learning_rate=strategy.learning_rate * learning_rate_factor(strategy.schedule, step, elapsed_s),
        elapsed_s=elapsed_s,
        shaping_scale=last.shaping_scale if last is not None else 0.0,
    )


def tell(
    strategy: Strategy,
    population: Population,
    *,
    block: bytes,
    spans: tuple[tuple[int, int], ...],
    losses: Float32Array,
    duration_s: float,
) -> Update:
    """The Update that these losses (nats per token, float32, span after span) amount to.

    `duration_s` is for how long the step was open.
    """
    spread = spread_of(losses, population.group_size)
    scale = population.shaping_scale or spread
    utilities = SHAPINGS[strategy.fitness_shaping](losses, population.group_size, scale)
    n_members = max(n_counted(losses, population.group_size), 1)
    return Update(
        step=population.step,
        block=block,
        spans=spans,
        utilities=utilities,
        rank=population.rank,
        group_size=population.group_size,
        # The gradient of the loss: a lower loss has a higher utility, hence the sign.
        gradient_scale=-scale / (UTILITY_RESOLUTION * n_members * population.sigma),
        optimizer=strategy.optimizer,
        learning_rate=population.learning_rate,
        beta1=strategy.beta1,
        beta2=strategy.beta2,
        epsilon=ADAM_EPSILON,
        antithetic=population.antithetic,
        weight_decay=strategy.weight_decay,
        elapsed_s=population.elapsed_s + duration_s,
        shaping_scale=SPREAD_DECAY * scale + (1.0 - SPREAD_DECAY) * spread if spread > 0.0 else scale,
    )
