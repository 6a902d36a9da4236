"""The strategy as ask and tell: the population of a step, and the Update that follows from its losses.

Source: Salimans et al., "Evolution Strategies as a Scalable Alternative to Reinforcement Learning", arXiv 1703.03864;
low-rank perturbations as in EGGROLL, arXiv 2511.16652.
"""

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.attempts import LOWER, WIDER, Attempt, Attempts, attempt_after, attempt_by_gradients, attempt_of_search
from fedlearn.es.growth import LEAST_STEP_S, Growth, usual_step_s, warmed
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.optimizers import AnyOptimizer, Sgd
from fedlearn.es.perturbation import MAX_UNIT_BITS, LocalSteps, Perturbation
from fedlearn.es.schedules import Schedule, learning_rate_factor, progress, sigma_factor
from fedlearn.es.shaping import UTILITY_RESOLUTION, Shaping, n_counted, spread_of
from fedlearn.es.sums.estimate import NO_ESTIMATE, CodedEstimate
from fedlearn.es.sums.exchange import LARGEST_SUM_BYTES, Exchange, sum_bytes, sums_pay
from fedlearn.es.sums.moments import START_WEIGHT, Int64Array, renormalization_of
from fedlearn.es.update import DecayTowards, Update, elapsed_s_after

Float32Array = NDArray[np.float32]

SPREAD_DECAY = 0.9
"""Weight of earlier steps in the running spread of losses."""

BEYOND_RATE = 0.2
"""The share of the members that network lines ask for which a step has even where the learning rate can't follow them.

Such members each teach less, but without them steps would be fewer."""

SUM_BITS = 26
"""Bits of the greatest number in a sum of gradients: the next sum may have one that is 32 times as large."""

GRADIENT_STEP_S = 0.004
"""Seconds of gradients in a step: what else a step takes is not much longer."""

GRADIENT_LINE_SHARE = 0.25
"""The share of `least_s` that a step of gradients lasts at least: an exchange then takes about as long."""

MOST_LOCAL_STEPS = 128
"""The most local steps where lines decide: more of them hardly save time, and cost loss."""

AUDITED_LOCAL_STEPS, AUDITED_PLAIN_STEPS = 4, 16
"""The most local steps after which honest machines still agree so well that one can check another; of plain gradient
descent, which does not divide gradients by their length and so leaves small differences small."""

FAST_LINE_STEP_S = 0.1
"""The `line_step_s` below which lines never hold anybody up: exchanges of 10 ms may as well be the work of a busy
machine."""

COARSE_FROM = 2.0
"""Steps that would make up for the lines, from which on sums have four bits a parameter."""

FINE_BELOW = 0.5
"""Such steps below which sums have a byte again: a byte takes twice as long, and lines vary."""

MOST_GROUPS = 1024
"""The most machines that take local steps in one step of the run, where the population does not grow, and the factor by
which a search has more members at most."""

MOMENTUM_OF_LOCAL_STEPS = 0.5
"""The momentum of the mean of local steps whose optimizer has a state, which is new in each group."""


class Strategy(msgspec.Struct, frozen=True):
    """The settings of a run that turn losses into steps; the only state is in the Updates themselves."""

    perturbation: Perturbation
    group_size: int
    population_limit: int
    optimizer: AnyOptimizer
    """The optimizer, whose learning rate is that of a step of `population_limit` members before the schedule; that of
    local steps, where volunteers take some."""
    fitness_shaping: str
    """A key of `SHAPINGS`."""
    exchange: Exchange = "replay"
    weight_decay: float = 0.0
    decay_towards: DecayTowards = "zero"
    schedule: Schedule = Schedule()
    max_population: int = 0
    """The largest value to which `population_limit` may grow with the volunteers' speed; 0 means no growth."""
    population_warmup: int = 0
    """The number of steps over which the population rises to its limit."""
    max_learning_rate: float = 0.0
    """The largest value to which the learning rate may grow with the population; 0 means no growth."""
    local_steps: int = 1
    """Steps that a volunteer takes by itself between two exchanges, each of `population_limit` gradients; 1: each is
    exchanged; 0: as many as make up for slow lines."""
    most_local_steps: int = MOST_LOCAL_STEPS
    """The most of them where lines decide."""
    sum_bits: int = 8
    """Bits of a parameter in a sum of gradients; 0: four where lines are slow, else eight."""
    coarse_local_steps: bool = True
    """Whether sums of local steps may have four bits where lines decide."""
    attempts: Attempts = Attempts()

    @property
    def keeps_start(self) -> bool:
        """Whether replicas keep the first weights, to which steps may go back."""
        return self.decay_towards == "start" or self.attempts.restarts > 0

    @property
    def growth(self) -> Growth:
        """The rule by which population and learning rate grow together."""
        rate = self.optimizer.learning_rate
        return Growth(self.population_limit, max(self.max_learning_rate / rate, 1.0) if rate else 1.0)


class Population(msgspec.Struct, frozen=True):
    """The population of one step: at most `limit` members with this perturbation, in whole groups."""

    step: int
    perturbation: Perturbation
    group_size: int
    limit: int
    """The largest number of members, a multiple of `group_size`."""
    optimizer: AnyOptimizer
    """The optimizer, with the learning rate of the strategy's `population_limit` after the schedule; that of local
    steps is in the perturbation."""
    elapsed_s: float
    """Seconds for which the steps before this one were open."""
    shaping_scale: float
    """The running standard deviation of losses within groups before this step; 0 when nothing is known yet."""
    weight_decay: float = 0.0
    observed: float = START_WEIGHT
    """The number of observations that mean and deviation of these stand for before this step."""
    attempt: Attempt | None = None
    """The attempt before this step, None at the first one; where gradients are measured, that of this step."""

    @property
    def n_local_steps(self) -> int:
        """Number of steps that each machine takes between two exchanges."""
        steps = self.perturbation.local_steps
        return self.group_size // steps.n_members if steps is not None else 1


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
    elapsed_s = elapsed_s_after(last)
    limit = members_wanted(strategy, elapsed_s, members_per_s=members_per_s, least_s=least_s, n_machines=n_machines)
    wider = widening(strategy, last)
    n_groups = max(limit, wider * strategy.population_limit) // strategy.group_size
    n_groups = warmed(n_groups, step, strategy.population_warmup, least=n_machines)
    factor = learning_rate_factor(strategy.schedule, step, elapsed_s)
    population = Population(
        step=step,
        perturbation=_perturbation_after(strategy, step, last),
        group_size=strategy.group_size,
        limit=n_groups * strategy.group_size,
        optimizer=_with_rate(strategy.optimizer.widened(wider), factor),
        elapsed_s=elapsed_s,
        shaping_scale=last.shaping_scale if last is not None else 0.0,
        weight_decay=strategy.weight_decay,
        observed=START_WEIGHT if last is None or last.renormalization is None else last.renormalization.weight,
        attempt=last.attempt if last is not None and strategy.perturbation.space != "nothing" else None,
    )
    if strategy.perturbation.space != "nothing":
        return population
    if strategy.attempts.restarts and (attempt := _attempt_by_gradients(last, step)) is not None:
        optimizer = population.optimizer.lowered(LOWER ** (attempt.number - 1))
        population = msgspec.structs.replace(population, attempt=attempt, optimizer=optimizer)
    is_slow = member_s > 0.0 and line_step_s >= FAST_LINE_STEP_S
    wanted = GRADIENT_LINE_SHARE * line_step_s / (member_s * strategy.population_limit) if is_slow else 0.0
    n_local = strategy.local_steps or _local_steps_wanted(strategy, last, wanted)
    bits = strategy.sum_bits or _sum_bits_wanted(strategy, last, wanted, n_local)
    if n_local > 1:
        population = _of_local_steps(population, strategy, n_local, n_machines)
    perturbation = msgspec.structs.replace(population.perturbation, sum_bits=bits, pass_members=population.limit)
    return msgspec.structs.replace(population, perturbation=perturbation)


def widening(strategy: Strategy, last: Update | None) -> int:
    """The factor by which the step after this Update has more members, as those of further attempts of a search."""
    if not strategy.optimizer.searches or last is None or last.attempt is None:
        return 1
    number = last.attempt.number + (last.attempt.move == "anew")
    return int(min(WIDER ** min(number - 1, strategy.attempts.restarts), MOST_GROUPS))


def search_end(strategy: Strategy, last: Update | None) -> str:
    """Why a search is over after this Update; empty where it is not, and for what is no search."""
    attempt = last.attempt if last is not None and strategy.optimizer.searches else None
    if attempt is None or attempt.number <= strategy.attempts.restarts + 1:
        return ""
    return f"the search is at its end: members' losses no longer differ from {attempt.smoothed:.6g}"


def _attempt_by_gradients(last: Update | None, step: int) -> Attempt | None:
    if last is None:
        return Attempt(1, step)
    return attempt_by_gradients(last.attempt, step=step) if last.attempt is not None else None


def _sum_bits_wanted(strategy: Strategy, last: Update | None, wanted: float, n_local: int) -> int:
    """The bits of a parameter in a sum; those of the last step stay unless the lines clearly ask for others."""
    if n_local > 1 and not strategy.coarse_local_steps:
        return 8
    is_coarse = last is not None and last.estimate.is_packed
    return 4 if wanted >= (FINE_BELOW if is_coarse else COARSE_FROM) else 8


def _local_steps_wanted(strategy: Strategy, last: Update | None, wanted: float) -> int:
    """The number of local steps of a machine, a power of two, by the `wanted` steps that would make up for the lines.

    The number of the last step stays unless it is far from what the lines ask for now.
    """
    before = 1 if last is None else max(last.group_size // strategy.population_limit, 1)
    if before / 2 < wanted < 4 * before and before <= strategy.most_local_steps:
        return before
    return int(min(2.0 ** math.floor(math.log2(max(wanted, 1.0))), strategy.most_local_steps))


def _of_local_steps(population: Population, strategy: Strategy, n_local: int, n_machines: int) -> Population:
    """The population in which each machine takes so many local steps, and the run takes their mean."""
    each = strategy.population_limit
    n_groups = max(min(n_machines, strategy.max_population // each or MOST_GROUPS), 1)
    steps = LocalSteps(population.optimizer, each)
    return msgspec.structs.replace(
        population,
        perturbation=msgspec.structs.replace(population.perturbation, local_steps=steps),
        group_size=n_local * each,
        limit=n_groups * n_local * each,
        optimizer=_mean_of_local_steps(steps.optimizer),
        # The mean has a rate of 1, and decays weights as local steps would.
        weight_decay=1.0 - (1.0 - steps.optimizer.learning_rate * population.weight_decay) ** n_local,
    )


def audited_local_steps(optimizer: AnyOptimizer) -> int:
    """The most local steps by this optimizer whose results can be audited."""
    return AUDITED_LOCAL_STEPS if optimizer.slots else AUDITED_PLAIN_STEPS


def _mean_of_local_steps(local: AnyOptimizer) -> Sgd:
    """The optimizer of a run whose volunteers take local steps by this one: the mean of their ways.

    Momentum makes up for the state that is lost between two exchanges. Where there is none to lose, as in plain
    gradient descent, a lone volunteer's steps are those that it would take without any exchange.
    """
    return Sgd(1.0, MOMENTUM_OF_LOCAL_STEPS if local.slots else 0.0)


def _perturbation_after(strategy: Strategy, step: int, last: Update | None) -> Perturbation:
    """The perturbation of `step`; gradients are counted in a unit that follows from the greatest of the last sum."""
    perturbation = strategy.perturbation.scaled(sigma_factor(strategy.schedule, step, elapsed_s_after(last)))
    if perturbation.space != "nothing" or last is None or not last.estimate.is_there or last.gradient_scale <= 0.0:
        return perturbation
    # gradient_scale is what one unit of the sum is worth in the mean over its groups.
    unit_bits = -round(math.log2(last.gradient_scale * max(last.n_members // last.group_size, 1)))
    spare_bits = SUM_BITS - last.estimate.bits
    return msgspec.structs.replace(perturbation, unit_bits=min(max(unit_bits + spare_bits, 0), MAX_UNIT_BITS))


def members_wanted(
    strategy: Strategy, elapsed_s: float, *, members_per_s: float, least_s: float = 0.0, n_machines: int = 1
) -> int:
    """The number of members of a step that begins after `elapsed_s` of the run.

    It grows along the run and as volunteers join, as far as the learning rate follows, and beyond that only for a step
    of LEAST_STEP_S, where slow network lines need longer steps, and for a group for each of `n_machines`. Where
    gradients are measured, a step is as short as the lines allow, since many small ones learn most.
    """
    if strategy.perturbation.space == "nothing":
        wanted = max(GRADIENT_LINE_SHARE * least_s, GRADIENT_STEP_S) * members_per_s
        return max(strategy.population_limit, min(int(wanted), strategy.max_population))
    largest = strategy.growth.largest_population
    useful = min(usual_step_s(strategy.schedule.duration_s, elapsed_s) * members_per_s, largest)
    asked = least_s * members_per_s
    if strategy.max_learning_rate:
        asked = min(asked, max(largest, BEYOND_RATE * asked))
    wanted = max(useful, asked, LEAST_STEP_S * members_per_s, n_machines * strategy.group_size)
    return max(strategy.population_limit, min(int(wanted), strategy.max_population))


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
        else _with_rate(population.optimizer, strategy.growth.factor_of(n_members)),
        antithetic=perturbation.antithetic,
        weight_decay=population.weight_decay,
        decay_towards=strategy.decay_towards,
        elapsed_s=population.elapsed_s + duration_s,
        shaping_scale=SPREAD_DECAY * scale + (1.0 - SPREAD_DECAY) * spread if spread > 0.0 else scale,
        estimate=estimate,
        renormalization=None if moments is None else renormalization_of(moments, population.observed),
        attempt=_attempt_after(strategy, population, losses, population.elapsed_s + duration_s),
    )


def _attempt_after(
    strategy: Strategy, population: Population, losses: Float32Array, elapsed_s: float
) -> Attempt | None:
    """The attempt after a step with these losses; their median can't be moved far by a few false ones."""
    finite, of_search = losses[np.isfinite(losses)], strategy.optimizer.searches
    judges = of_search or strategy.attempts.restarts > 0
    if not judges or not finite.size or population.perturbation.space == "nothing":
        return population.attempt
    last, attempts, step = population.attempt, strategy.attempts, population.step
    is_last = progress(strategy.schedule, step + 1, elapsed_s) >= 1.0
    if of_search:
        return attempt_of_search(last, attempts, step=step, losses=finite, is_last=is_last)
    return attempt_after(last, attempts, step=step, loss=float(np.median(finite)), is_last=is_last)


def _with_rate(optimizer: AnyOptimizer, factor: float) -> AnyOptimizer:
    return msgspec.structs.replace(optimizer, learning_rate=optimizer.learning_rate * factor)
