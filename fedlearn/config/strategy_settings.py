"""The settings of members, and of how their losses become a step."""

from typing import Annotated, Literal

import msgspec

from fedlearn.config.setting import ConfigError, setting
from fedlearn.es.shaping import SHAPINGS
from fedlearn.es.sums.exchange import Exchange

MAX_MEMBERS = (2**31 - 1) // 127
"""Most members of a step at rank 1: the sum of their utilities, up to 127 each, fits a 32-bit integer."""

MAX_POPULATION = 16_000_000

MAX_LOCAL_STEPS = 10_000

OF_NOISE_ALONE = frozenset({"sigma", "sigma_schedule", "exchange"})
"""Settings that a resumed run may change, and that do nothing where gradients are measured."""


class StrategySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How members are made and tried, and how their losses become a step."""

    measure: Annotated[
        Literal["auto", "losses", "gradients"],
        setting(
            "what volunteers measure: losses of perturbed weights, or gradients; auto = gradients where PyTorch finds "
            "the derivative of the task's loss",
            common=True,
        ),
    ] = "auto"
    local_steps: Annotated[
        int,
        setting(
            "steps of gradients that a volunteer takes by itself between two exchanges; 1 = each step is exchanged, "
            "0 = as many as make up for slow lines",
            ge=0,
            le=MAX_LOCAL_STEPS,
        ),
    ] = 0
    sum_bits: Annotated[
        int,
        setting(
            "bits of a parameter in the sums of gradients that volunteers send and receive, 4 or 8; 0 = 4 where lines "
            "are slow, else 8",
            ge=0,
            le=8,
        ),
    ] = 0
    perturb: Annotated[
        Literal["auto", "weights", "activations"],
        setting(
            "where the noise goes; activations learn far more from a trial, and whoever joins has to be trusted more",
            automatic=True,
            common=True,
        ),
    ] = "auto"
    head: Annotated[
        Literal["auto", "perturbed", "closed-form"],
        setting(
            "output layer: perturbed like the rest, or trained by the closed form of its gradient",
            automatic=True,
        ),
    ] = "auto"
    sigma: Annotated[
        float,
        setting(
            "standard deviation of the noise, on weights or on inputs of hidden units",
            ge=0,
            le=1000,
            automatic=True,
            resumable=True,
            common=True,
        ),
    ] = 0.0
    sigma_schedule: Annotated[
        Literal["constant", "linear", "cosine"],
        setting("how sigma falls to a tenth at the end of the run", resumable=True),
    ] = "constant"
    logit_sigma: Annotated[
        float, setting("standard deviation of the noise on logits, with perturbed activations", gt=0, le=1000)
    ] = 0.05
    discount: Annotated[
        float, setting("weight of a loss for each token after the noise on an activation", ge=0, le=1)
    ] = 0.8
    correction: Annotated[
        float,
        setting(
            "weight of what trials say beyond the control variates' prediction: 1 = no bias, less = less variance",
            ge=0,
            le=1,
        ),
    ] = 0.0
    rank: Annotated[int, setting("rank of a matrix's perturbation; 0 = full rank, far slower", ge=0, le=8)] = 1
    antithetic: Annotated[bool, setting("members come in pairs with opposite noise")] = False
    group_size: Annotated[
        int,
        setting(
            "members that see the same data and are compared with one another, 2 or more",
            ge=0,
            le=65536,
            automatic=True,
        ),
    ] = 0
    population_limit: Annotated[
        int,
        setting(
            "most members per step, in whole groups",
            ge=0,
            le=MAX_POPULATION,
            automatic=True,
            resumable=True,
            common=True,
        ),
    ] = 0
    max_population: Annotated[
        int,
        setting(
            "what population_limit may grow to as volunteers join; 0 = it does not grow",
            ge=0,
            le=MAX_POPULATION,
            resumable=True,
        ),
    ] = 0
    population_warmup: Annotated[
        int,
        setting(
            "steps over which a step's members rise to population_limit, from one group, or one for each volunteer",
            ge=0,
            le=1_000_000,
        ),
    ] = 0
    time_per_step: Annotated[
        float,
        setting(
            "seconds after which a step closes, if population_limit members are not in before",
            ge=0,
            le=86400,
            automatic=True,
            resumable=True,
            common=True,
        ),
    ] = 0.0
    fitness_shaping: Annotated[str, setting("how losses within a group become utilities", choices=SHAPINGS)] = (
        "normalized"
    )
    restarts: Annotated[
        int,
        setting(
            "times that a run begins again from its first weights, if it is far from target_loss and not on its way "
            "there, and the best weights are kept; by gradients with a third of the rate, if its loss stands still; by "
            "cma elsewhere, with four times the members, once losses no longer differ",
            ge=0,
            le=1000,
        ),
    ] = 0
    target_loss: Annotated[
        float, setting("the loss that a run with restarts wants; minus the return of a policy", ge=-1e12, le=1e12)
    ] = 0.0
    exchange: Annotated[
        Exchange,
        setting(
            "how noise on weights becomes a step: volunteers replay everybody's noise, or each sums its own; "
            "auto = whichever costs less; the weights are the same",
            resumable=True,
        ),
    ] = "replay"


def check_population(strategy: StrategySettings) -> None:
    """Checks that members, groups and local steps go together.

    Raises:
        ConfigError: they do not.
    """
    measures_gradients = strategy.measure == "gradients"
    if strategy.sum_bits not in (0, 4, 8):
        raise ConfigError(f"sum_bits: expected 0, 4 or 8, got {strategy.sum_bits}")
    if strategy.measure == "losses" and strategy.local_steps > 1:
        raise ConfigError(
            f"local_steps: expected 0 or 1 with measure = losses, since local steps follow gradients, got "
            f"{strategy.local_steps}; leave it out"
        )
    if not measures_gradients and strategy.group_size == 1:
        raise ConfigError("group_size: expected 2 or more, or 0 to let the run choose, got 1")
    least = max(strategy.group_size, 1 if measures_gradients else 2)
    most = MAX_MEMBERS // max(strategy.rank, 1)
    for key in ("population_limit", "max_population"):
        members = getattr(strategy, key)
        if 0 < members < least:
            raise ConfigError(f"{key}: expected a group or more ({least} members), got {members}")
        if members > most:
            raise ConfigError(
                f"{key}: expected at most {most} with rank {strategy.rank}, so that the gradient estimate "
                f"fits 32 bits, got {members}"
            )
    if 0 < strategy.max_population < strategy.population_limit:
        raise ConfigError(
            f"max_population: expected population_limit ({strategy.population_limit}) or more, or 0 for a population "
            f"that does not grow, got {strategy.max_population}"
        )
    if strategy.antithetic and strategy.group_size % 2:
        raise ConfigError(f"group_size: expected an even number with antithetic pairs, got {strategy.group_size}")
    if strategy.fitness_shaping == "best-directions" and not strategy.antithetic:
        raise ConfigError(
            "fitness_shaping: expected antithetic = true with best-directions, whose directions are pairs of opposite "
            "noise, got false"
        )
