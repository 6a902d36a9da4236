"""The strategy as ask and tell: the population of a step, and the Update that follows from its losses.

Source: Salimans et al., "Evolution Strategies as a Scalable Alternative to Reinforcement Learning", arXiv 1703.03864;
low-rank perturbations as in EGGROLL, arXiv 2511.16652.
"""

from fedlearn.es.strategy.asking import MOST_WIDENING, ask, members_wanted, sum_shaping, widening
from fedlearn.es.strategy.gradients import AUDITED_PLAIN_STEPS, GRADIENT_STEP_S, audited_local_steps
from fedlearn.es.strategy.population import Population
from fedlearn.es.strategy.settings import MOST_LOCAL_STEPS, Strategy
from fedlearn.es.strategy.telling import search_end, tell

__all__ = [
    "AUDITED_PLAIN_STEPS",
    "GRADIENT_STEP_S",
    "MOST_LOCAL_STEPS",
    "MOST_WIDENING",
    "Population",
    "Strategy",
    "ask",
    "audited_local_steps",
    "members_wanted",
    "search_end",
    "sum_shaping",
    "tell",
    "widening",
]
