"""The strategy that follows from a run's settings."""

import msgspec

from fedlearn.config import RunConfig
from fedlearn.es.attempts import Attempts
from fedlearn.es.optimizers import optimizer_of
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.schedules import LearningRateSchedule, Schedule, parse_factors
from fedlearn.es.strategy import MOST_LOCAL_STEPS, Strategy, audited_local_steps

GRADIENTS = Perturbation(sigma=0.0, rank=0, space="nothing")
"""The perturbation of a run that measures gradients."""


def strategy_of(config: RunConfig) -> Strategy:
    """The strategy of a configuration; the noise is on weights where the configuration leaves that open."""
    strategy, settings = config.strategy, config.optimizer
    optimizer = optimizer_of(msgspec.structs.asdict(settings))
    return Strategy(
        perturbation=GRADIENTS
        if strategy.measure == "gradients"
        else Perturbation(
            space="weights" if strategy.perturb == "auto" else strategy.perturb,
            sigma=strategy.sigma,
            rank=strategy.rank,
            antithetic=strategy.antithetic,
            head="perturbed" if strategy.head == "auto" else strategy.head,
            logit_sigma=strategy.logit_sigma,
            discount=strategy.discount,
            correction=strategy.correction,
        ),
        group_size=strategy.group_size,
        population_limit=strategy.population_limit,
        max_population=strategy.max_population,
        population_warmup=strategy.population_warmup,
        optimizer=optimizer,
        max_learning_rate=settings.max_learning_rate,
        local_steps=strategy.local_steps,
        most_local_steps=audited_local_steps(optimizer) if config.server.audit else MOST_LOCAL_STEPS,
        sum_bits=strategy.sum_bits,
        coarse_local_steps=not config.server.audit,
        fitness_shaping=strategy.fitness_shaping,
        exchange=strategy.exchange,
        attempts=Attempts(strategy.restarts, strategy.target_loss),
        weight_decay=settings.weight_decay,
        decay_towards=settings.weight_decay_towards,
        schedule=Schedule(
            learning_rate=_learning_rate_schedule(config),
            sigma=strategy.sigma_schedule,
            factors=parse_factors(settings.learning_rate_factors),
            warmup_steps=settings.warmup_steps,
            steps=config.run.steps,
            duration_s=config.run.duration,
        ),
    )


def _learning_rate_schedule(config: RunConfig) -> LearningRateSchedule:
    if config.optimizer.learning_rate_schedule != "auto":
        return config.optimizer.learning_rate_schedule
    if not config.has_end:
        return "inverse-sqrt"
    return "late-linear" if config.strategy.measure == "gradients" else "linear"
