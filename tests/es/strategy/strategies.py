"""A strategy, what varies in it, and Updates that it tells."""

import msgspec
import numpy as np

from fedlearn.es.optimizers import Adam, Sgd
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.strategy import Population, Strategy, ask, tell
from fedlearn.es.update import Update

BLOCK = bytes(16)
STRATEGY = Strategy(
    perturbation=Perturbation(0.02, 1),
    group_size=8,
    population_limit=4000,
    optimizer=Sgd(0.25, 0.5),
    fitness_shaping="normalized",
    weight_decay=0.125,
    decay_towards="start",
)
ELASTIC = msgspec.structs.replace(STRATEGY, max_population=30_000, max_learning_rate=0.5)
GRADIENTS = Perturbation(0.0, 0, "nothing")


def told(losses: list[float], shaping_scale: float) -> Update:
    population = Population(
        step=3,
        perturbation=Perturbation(0.02, 1, antithetic=True),
        group_size=2,
        limit=100,
        optimizer=Adam(0.125, 0.5, 0.75),
        elapsed_s=7.0,
        shaping_scale=shaping_scale,
        weight_decay=0.25,
    )
    return tell(
        STRATEGY,
        population,
        block=BLOCK,
        spans=((4, len(losses)),) if losses else (),
        losses=np.array(losses, dtype=np.float32),
        duration_s=1.5,
    )


def update_of(strategy: Strategy, n_members: int, *, step: int = 0, n_broken: int = 0) -> Update:
    """Of so many members, some of them with infinite losses."""
    losses = np.resize(np.arange(8, dtype=np.float32), n_members)
    losses[:n_broken] = np.inf
    asked = ask(strategy, step, None, members_per_s=40_000.0)
    return tell(strategy, asked, block=BLOCK, spans=((0, n_members),), losses=losses, duration_s=0.0)
