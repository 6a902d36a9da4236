"""The population that a step asks for."""

from fedlearn.es.attempts import WIDER
from fedlearn.es.growth import LEAST_STEP_S, usual_step_s, warmed
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.schedules import learning_rate_factor, sigma_factor
from fedlearn.es.shaping import Shaping
from fedlearn.es.strategy.gradients import gradients_wanted, population_of_gradients
from fedlearn.es.strategy.population import Population
from fedlearn.es.strategy.settings import Strategy
from fedlearn.es.sums.exchange import LARGEST_SUM_BYTES, sum_bytes, sums_pay
from fedlearn.es.sums.moments import START_WEIGHT
from fedlearn.es.update import Update, elapsed_s_after

BEYOND_RATE = 0.2
"""The share of the members that network lines ask for which a step has even where the learning rate can't follow them.

Such members each teach less, but without them steps would be fewer."""

MOST_WIDENING = 1024
"""The factor by which a search has more members at most."""


def ask(
    strategy: Strategy,
    step: int,
    last: Update | None,
    *,
    members_per_s: float = 0.0,
    least_s: float = 0.0,
    line_step_s: float = 0.0,
    n_machines: int = 1,
    member_s: float = 0.0,
) -> Population:
    """The population of `step`, given the Update before it (None at the first step of a run).

    `members_per_s` is the measured speed of all volunteers together, 0 where it is unknown. `least_s` is the shortest
    step, in seconds, at which exchanges do not hold volunteers up, and `line_step_s` that at which the lines alone do
    not. Each of their `n_machines` computes at a member for `member_s` seconds; 0: unknown.
    """
    elapsed_s, has_noise = elapsed_s_after(last), strategy.perturbation.has_noise
    limit = members_wanted(strategy, elapsed_s, members_per_s=members_per_s, least_s=least_s, n_machines=n_machines)
    wider = widening(strategy, last)
    n_groups = max(limit, wider * strategy.population_limit) // strategy.group_size
    n_groups = warmed(n_groups, step, strategy.population_warmup, least=n_machines)
    factor = learning_rate_factor(strategy.schedule, step, elapsed_s)
    population = Population(
        step=step,
        perturbation=strategy.perturbation.scaled(sigma_factor(strategy.schedule, step, elapsed_s)),
        group_size=strategy.group_size,
        limit=n_groups * strategy.group_size,
        optimizer=strategy.optimizer.widened(wider).scaled(factor),
        elapsed_s=elapsed_s,
        shaping_scale=last.shaping_scale if last is not None else 0.0,
        weight_decay=strategy.weight_decay,
        observed=START_WEIGHT if last is None or last.renormalization is None else last.renormalization.weight,
        attempt=last.attempt if last is not None and has_noise else None,
    )
    if has_noise:
        return population
    return population_of_gradients(
        population, strategy, last, line_step_s=line_step_s, n_machines=n_machines, member_s=member_s
    )


def members_wanted(
    strategy: Strategy, elapsed_s: float, *, members_per_s: float, least_s: float = 0.0, n_machines: int = 1
) -> int:
    """The number of members of a step that begins after `elapsed_s` of the run.

    It grows along the run and as volunteers join, as far as the learning rate follows, and beyond that only for a step
    of LEAST_STEP_S, where slow network lines need longer steps, and for a group for each of `n_machines`. Where
    gradients are measured, a step is as short as the lines allow.
    """
    if not strategy.perturbation.has_noise:
        wanted = gradients_wanted(members_per_s=members_per_s, least_s=least_s)
        return max(strategy.population_limit, min(int(wanted), strategy.max_population))
    largest = strategy.growth.largest_population
    useful = min(usual_step_s(strategy.schedule.duration_s, elapsed_s) * members_per_s, largest)
    asked = least_s * members_per_s
    if strategy.max_learning_rate:
        asked = min(asked, max(largest, BEYOND_RATE * asked))
    wanted = max(useful, asked, LEAST_STEP_S * members_per_s, n_machines * strategy.group_size)
    return max(strategy.population_limit, min(int(wanted), strategy.max_population))


def widening(strategy: Strategy, last: Update | None) -> int:
    """The factor by which the step after this Update has more members, as those of further attempts of a search."""
    if not strategy.optimizer.searches or last is None or last.attempt is None:
        return 1
    number = last.attempt.number + (last.attempt.move == "anew")
    return int(min(WIDER ** min(number - 1, strategy.attempts.restarts), MOST_WIDENING))


def sum_shaping(
    strategy: Strategy,
    population: Population,
    layout: ParameterLayout,
    *,
    n_volunteers: int,
    members_per_s: float = 0.0,
) -> Shaping | None:
    """The shaping with which volunteers sum the gradients of their members; None where the step is replayed.

    A first step is replayed because no scale is known before it, and so is a step whose sum would not fit into a
    message, or whose optimizer has to know members apart.
    """
    perturbation, n_members = population.perturbation, population.limit
    if (
        strategy.exchange == "replay"
        or strategy.optimizer.searches
        or perturbation.is_summed
        or not population.shaping_scale > 0.0
    ):
        return None
    if sum_bytes(layout, perturbation.rank, n_members) > LARGEST_SUM_BYTES:
        return None
    if strategy.exchange == "auto" and not sums_pay(
        layout, perturbation.rank, n_members=n_members, n_volunteers=n_volunteers, members_per_s=members_per_s
    ):
        return None
    return Shaping(strategy.fitness_shaping, population.shaping_scale)
