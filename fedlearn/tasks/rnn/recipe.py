"""What a run chooses itself where its configuration says 0, from a machine's speed and the size of the text.

Source: trials on tinyshakespeare with one layer of 64 to 256 tanh units and Adam;
docs/design/steps.md, "Automatic settings".
"""

import math
from collections.abc import Callable, Mapping

import msgspec

from fedlearn.config import MAX_MEMBERS, MAX_POPULATION, RunConfig
from fedlearn.es.growth import LEAST_STEP_S, Growth, usual_step_s
from fedlearn.es.optimizers import OPTIMIZERS, optimizer_name
from fedlearn.tasks.reason import Reason, Reasons
from fedlearn.tasks.rnn.cells import CELLS
from fedlearn.tasks.rnn.layout import rnn_layout
from fedlearn.tasks.rnn.options import options_of

REFERENCE_HIDDEN_SIZE = 64
"""The hidden size at which throughput is measured."""

USUAL_S = 600.0
"""Assumed duration of a run without a `duration`, in seconds."""

LONG_TRIAL_TOKENS = 1e9
"""Trial-tokens from which on a run with perturbed weights and an end needs smaller steps."""

MOST_WORK_S = 1.0
"""The most seconds of trials in a step, since a run needs many steps, however large its model."""

_MAX_PROBED_WINDOW = 64
"""Tokens of context, and scored ones: speed hardly depends on more, and a measurement must be short."""

_MAX_PROBED_GROUP_SIZE = 64

ISAS_WITH_BYTE_PRODUCTS = frozenset({"v3-vnni", "v4-vnni", "dot"})
"""Instruction sets that multiply bytes and sum the products; without them, bytes take longer than float32."""

LEAST_HIDDEN_SIZE = 16
LARGE_TRIAL_TOKENS = 3e9
"""Trial-tokens above which more units and more groups in a step learn more, with perturbed activations."""


class Groups(msgspec.Struct, frozen=True):
    """Steps with perturbed activations: members of a group, the rate, and how far both may grow."""

    noise: str
    """The kind of noise with which these values were found, for people."""
    size: int
    rate: float
    """The learning rate of a step of `known` groups, times the number of units."""
    known: int
    largest: int
    """The largest number of groups that the learning rate follows."""
    line_growth: int
    """The factor by which there may be more groups if network lines are slow."""


TRIALS = Groups("perturbed activations", size=16, rate=0.32, known=64, largest=4096, line_growth=16)
LARGE_TRIALS = Groups("perturbed activations", size=16, rate=0.32, known=256, largest=4096, line_growth=16)
"""The groups of runs with more than LARGE_TRIAL_TOKENS."""
CHAIN = Groups("perturbed activations and control variates", size=4, rate=0.8, known=64, largest=1024, line_growth=4)
"""The groups of runs with a chain of control variates, which learns more from many steps than from many members."""

CHAIN_SIZES = {"closed-form": (6e7, 128), "perturbed": (3e8, 128)}
"""Units that learned most with the chain up to so many trial-tokens; 256 above."""

LARGEST_FACTOR = 2.0
"""The greatest factor on the learning rate with perturbed weights, reached at four times the known population."""

LARGEST_SHARE = 16
"""Members of a step for each parameter, with perturbed weights: more of them at the same rate cost nothing."""

LINE_GROWTH = 2
"""How many times larger a population may be where lines are slow, with perturbed weights."""

MOST_TO_ADAM = 2.0
"""The greatest rate of any optimizer with noise on activations, as a multiple of Adam's, which is high already."""

DEADLINE_S = (5.0, 60.0)
"""The shortest and the longest `time_per_step`. Lines lengthen steps up to half of it, see docs/design/steps.md."""

Choice = tuple[dict[str, int | float], str]
"""Values of keys, and why these."""


class _Facts(msgspec.Struct, frozen=True):
    throughput: float
    n_training_tokens: int
    vocab_size: int


def settle(
    config: RunConfig, *, throughput: float, n_training_tokens: int, vocab_size: int
) -> tuple[RunConfig, Reasons]:
    """The configuration with a value for each automatic key, and the reason for each that was chosen here.

    `throughput` is in trial-tokens per second at hidden size 64, above 0. What the configuration has stays as it is.

    Raises:
        ConfigError: no value fits the given ones.
    """
    facts = _Facts(throughput, n_training_tokens, vocab_size)
    reasons = []
    for key, choose in _CHOICES.items():
        if not config.get(key):
            values, why = choose(config, facts)
            config = config.replace(values)
            reasons.append(Reason(why, key, f"{values[key]:.10g}"))
    return config, tuple(reasons)


def probe_of(config: RunConfig) -> RunConfig:
    """The configuration with trials that are quick to measure, of the reference size; not settled yet."""
    options = options_of(config)
    return config.replace(
        {
            "hidden_size": REFERENCE_HIDDEN_SIZE,
            "batch_size": 1,
            "context": min(options.context, _MAX_PROBED_WINDOW),
            "sequence_length": min(options.sequence_length, _MAX_PROBED_WINDOW),
            "group_size": min(config.strategy.group_size, _MAX_PROBED_GROUP_SIZE),
            "population_limit": 0,
            "max_population": 0,
        }
    )


def members_per_s(config: RunConfig, *, throughput: float, vocab_size: int) -> float:
    """Members per second at the run's own hidden size; a token costs the products with recurrent and head matrices."""
    options = options_of(config)

    def products(size: int) -> int:
        return (2 * options.n_layers - 1) * CELLS[options.cell].gates * size**2 + vocab_size * size

    speed = throughput * products(REFERENCE_HIDDEN_SIZE) / products(options.hidden_size)
    return speed / (options.batch_size * options.sequence_length)


def choose_precision(config: RunConfig, isa: str) -> tuple[RunConfig, Reasons]:
    """The configuration with the arithmetic of all machines' trials, by the instruction set of this one.

    Bytes were tried with noise on activations, which learn as much from them; audits hold all volunteers to one
    precision.
    """
    if options_of(config).precision != "auto":
        return config, ()
    if config.strategy.perturb == "weights":
        return config.replace({"precision": "float32"}), ()
    if isa in ISAS_WITH_BYTE_PRODUCTS:
        precision, why = "int8", f"this processor has dot products of bytes ({isa}), and so trials are faster"
    else:
        precision, why = "float32", f"this processor has no dot products of bytes ({isa}), so int8 would be slower"
    return config.replace({"precision": precision}), (Reason(why, "precision", precision),)


def choose_optimizer(config: RunConfig) -> tuple[RunConfig, Reasons]:
    """The configuration with Muon where perturbed activations train a head in closed form and none is named."""
    is_summed = config.strategy.perturb == "activations" and config.strategy.head == "closed-form"
    if config.optimizer.optimizer != "auto" or not is_summed:
        return config, ()
    why = "recurrent matrices learn more by it from perturbed activations"
    return config.replace({"optimizer": "muon"}), (Reason(why, "optimizer", "muon"),)


def _hidden_size(config: RunConfig, facts: _Facts) -> Choice:
    trial_tokens = _trial_tokens(config, facts)
    if config.strategy.perturb == "weights":
        size = 128 if trial_tokens > 2e10 else 64
    elif _has_chain(config):
        most, units = CHAIN_SIZES[config.strategy.head]
        size = units if trial_tokens <= most else 256
    else:
        size = 64 if trial_tokens < 1e8 else 128 if trial_tokens <= LARGE_TRIAL_TOKENS else 256
    why = f"for {_millions(trial_tokens)} trial-tokens in {config.run.duration or USUAL_S:g} s"
    if expected := config.volunteers.expected_volunteers:
        why += f", with {expected} volunteers that are expected"
    wanted = size
    while size > LEAST_HIDDEN_SIZE and 2 * _n_parameters(config, size, facts) > facts.n_training_tokens:
        size //= 2
    if size < wanted:
        why = f"with more units there is more than a parameter for two of the {facts.n_training_tokens} training tokens"
    return {"hidden_size": size}, why


def _group_size(config: RunConfig, facts: _Facts) -> Choice:
    if config.strategy.perturb == "weights":
        size, why = 64, "learned most with perturbed weights"
    else:
        groups = _groups(config, facts)
        size, why = groups.size, f"learned most with {groups.noise}"
    # Powers of two, down to what a population that was given can hold.
    while size > (config.strategy.population_limit or config.strategy.max_population or size):
        size, why = size // 2, "goes into the population that was given"
    return {"group_size": size}, why


def _sigma(config: RunConfig, _: _Facts) -> Choice:
    sigma = 0.01 if config.strategy.perturb == "weights" else 0.05
    return {"sigma": sigma}, f"learned most with perturbed {config.strategy.perturb}"


def _population(config: RunConfig, facts: _Facts) -> Choice:
    """The population of the first steps, and the largest to which it may grow."""
    strategy, speed = config.strategy, _members_per_s(config, facts)
    growth, step_s = _growth(config, facts), usual_step_s(config.run.duration, math.inf)
    if strategy.perturb == "weights":
        least, most, line_growth = growth.population // 2, LARGEST_SHARE * growth.population, LINE_GROWTH
        affordable = int(MOST_WORK_S * speed)
    else:
        least, most, line_growth = growth.population, growth.largest_population, _groups(config, facts).line_growth
        affordable = most
    possible = min(strategy.max_population or MAX_POPULATION, MAX_MEMBERS // max(strategy.rank, 1))
    later = min(max(least, int(step_s * speed)), affordable, most, possible)
    limit = _whole_groups(min(max(growth.population, int(LEAST_STEP_S * speed)), later), config)
    largest = strategy.max_population or max(_whole_groups(min(line_growth * most, possible), config), limit)
    reached = max(limit, min(later, growth.largest_population))
    why = f"{limit / speed * 1e3:.3g} ms of trials; along the run steps may grow to {reached / speed:.2g} s, "
    why += f"which are {reached} members here, and with the volunteers that join up to {largest}"
    return {"population_limit": limit, "max_population": largest}, why


def _learning_rate(config: RunConfig, facts: _Facts) -> Choice:
    growth, members = _growth(config, facts), config.strategy.population_limit
    if config.strategy.time_per_step:  # which was given, and may end steps before all members are in
        members = min(members, int(config.strategy.time_per_step * _members_per_s(config, facts)))
    reference, why = _reference_rate(config, facts)
    name = optimizer_name(config.optimizer.optimizer)
    ratio, decay = OPTIMIZERS[name].rate_to_adam, config.optimizer.weight_decay
    if config.strategy.perturb == "activations":
        ratio, decay = min(ratio, MOST_TO_ADAM), decay or OPTIMIZERS[name].usual_decay
    if ratio != 1.0:
        reference, why = ratio * reference, f"{why}, times {ratio:g} with {name}"
    factor = growth.factor_of(members)
    rate = _rounded(reference * factor)
    if factor > 1.0:
        why = f"{why}, times {factor:.3g} for {members} members in place of {growth.population}"
    largest = config.optimizer.max_learning_rate
    if config.strategy.max_population > members and not largest:
        largest = _rounded(reference * growth.largest_factor)
        why = f"{why}; up to {largest:g} as the population grows"
    if decay != config.optimizer.weight_decay:
        why = f"{why}; matrices decay by {decay:g}"
    rates = {"learning_rate": min(rate, largest or rate), "max_learning_rate": largest}
    return {**rates, "weight_decay": decay}, why


def _reference_rate(config: RunConfig, facts: _Facts) -> tuple[float, str]:
    """The learning rate of steps with the population for which it was found, and what it is made of."""
    hidden_size, trial_tokens = options_of(config).hidden_size, _trial_tokens(config, facts)
    if config.strategy.perturb == "activations":
        groups = _groups(config, facts)
        rate, why = groups.rate / hidden_size, f"{groups.rate:g} / {hidden_size} units with {groups.noise}"
        if trial_tokens < 2e7 and groups is not CHAIN:
            return 2.0 * rate, f"twice {why}, for less than 20 million trial-tokens"
        return rate, why
    if config.run.duration and trial_tokens > LONG_TRIAL_TOKENS:
        at_reference, end = 0.003, "a far end"
    elif config.has_end:
        at_reference, end = 0.01, "an end"
    else:
        at_reference, end = 0.006, "no end"
    why = f"{at_reference:g} x {REFERENCE_HIDDEN_SIZE} / {hidden_size} units, in a run with {end}"
    return at_reference * REFERENCE_HIDDEN_SIZE / hidden_size, why


def _growth(config: RunConfig, facts: _Facts) -> Growth:
    """The population for which the reference rate was found, and how far the rate follows larger ones."""
    if config.strategy.perturb == "weights":
        return Growth(_n_parameters(config, options_of(config).hidden_size, facts), LARGEST_FACTOR)
    groups = _groups(config, facts)
    return Growth(groups.known * config.strategy.group_size, math.sqrt(groups.largest / groups.known))


def _groups(config: RunConfig, facts: _Facts) -> Groups:
    """What is known of steps with perturbed activations like those of the run."""
    if _has_chain(config):
        return CHAIN
    return LARGE_TRIALS if _trial_tokens(config, facts) > LARGE_TRIAL_TOKENS else TRIALS


def _time_per_step(config: RunConfig, facts: _Facts) -> Choice:
    expected_s = config.strategy.population_limit / _members_per_s(config, facts)
    shortest, longest = DEADLINE_S
    deadline = min(max(float(math.ceil(4.0 * expected_s)), shortest), longest)
    why = f"four times the {expected_s:.2g} s that this machine needs, {shortest:g} to {longest:g} s"
    return {"time_per_step": deadline}, why


_CHOICES: Mapping[str, Callable[[RunConfig, _Facts], Choice]] = {
    "hidden_size": _hidden_size,
    "group_size": _group_size,
    "sigma": _sigma,
    "population_limit": _population,
    "learning_rate": _learning_rate,
    "time_per_step": _time_per_step,
}
"""The choices, in an order in which each finds the settings that it reads from the configuration."""


def _has_chain(config: RunConfig) -> bool:
    """Whether control variates make the step, which trials only teach."""
    strategy = config.strategy
    return strategy.perturb == "activations" and options_of(config).control_variates and strategy.correction < 1.0


def _trial_tokens(config: RunConfig, facts: _Facts) -> float:
    """What this machine and volunteers that are expected do in the time of the run, if it takes 64 units."""
    volunteers = config.volunteers
    n_machines = max((volunteers.volunteers > 0) + volunteers.expected_volunteers, 1)
    return n_machines * facts.throughput * (config.run.duration or USUAL_S)


def _members_per_s(config: RunConfig, facts: _Facts) -> float:
    return members_per_s(config, throughput=facts.throughput, vocab_size=facts.vocab_size)


def _n_parameters(config: RunConfig, hidden_size: int, facts: _Facts) -> int:
    options = options_of(config)
    return rnn_layout(facts.vocab_size, hidden_size, options.n_layers, options.embedding_scale, options.cell).size


def _whole_groups(n_members: int, config: RunConfig) -> int:
    return max(n_members // config.strategy.group_size, 1) * config.strategy.group_size


def _rounded(rate: float) -> float:
    """The rate, rounded to three digits for people."""
    return float(f"{rate:.3g}")


def _millions(number: float) -> str:
    return f"{number / 1e6:,.4g} million" if number < 1e9 else f"{number / 1e6:,.0f} million"
