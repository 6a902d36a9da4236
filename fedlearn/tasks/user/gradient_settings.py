"""The settings of a run of a user's task that measures gradients."""

import math
from statistics import median

from fedlearn.config import MAX_POPULATION, RunConfig
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.optimizers import OPTIMIZERS, optimizer_name
from fedlearn.es.optimizers.hyperparameters import defaults
from fedlearn.es.strategy import GRADIENT_STEP_S
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.kind import Measure
from fedlearn.tasks.reason import Reason, Reasons
from fedlearn.tasks.strategy import strategy_of
from fedlearn.tasks.user.first_step import USUAL, longer
from fedlearn.tasks.user.measure_choice import UNUSED_SIGMA
from fedlearn.tasks.user.task_objective import TaskObjective

RESTARTS = 1
"""Times that a run whose rate is chosen may begin again with a third of it, because its loss stands still."""

LEARNING_RATE = 0.003
"""Adam's, for a step of one gradient; for one of n, the root of n times as much."""

MOST_LEARNING_RATE = 0.02

TUNING_SHARE = 0.05
"""The learning rate where learning begins with good weights, as a share of the usual one."""

MOST_TO_ADAM = 2.0
"""The greatest learning rate of any optimizer, as a multiple of Adam's greatest."""

USUAL_STEPS = 1000
"""The steps of a run in which all but hidden matrices have these rates; where the steps are known that there will be,
such rates fall with their cube root."""

USUAL_WIDTH = 64
"""The width of a model up to which all but hidden matrices may have these rates; beyond, they fall with the width."""

MOST_WIDTH = 4096
"""The width beyond which they fall no further."""

VECTOR_RATE = 0.3
"""The rate of vectors as a multiple of that of embeddings and head: an element of a bias moves all rows alike."""

GROWTH = 64
"""The factor by which the population may grow as volunteers join."""

DEADLINE_S = (10.0, 3600.0)
"""The least and the greatest `time_per_step`, which only cuts stragglers off: a step closes when all sums are in."""

LINES_DEADLINE_S = 120.0
"""The least `time_per_step` where lines decide how many local steps it has: as many as they ask for take an eighth."""


def settle_gradients(
    config: RunConfig, objective: TaskObjective, data: Columns, measure: Measure, reasons: Reasons
) -> tuple[RunConfig, Reasons]:
    """The configuration of a run that measures gradients, with a value for each automatic key, and the reasons."""
    config = config.replace({"group_size": 1, "sigma": UNUSED_SIGMA})
    chosen = list(reasons)
    if (config.server.seats or config.server.shards > 1) and not config.strategy.local_steps:
        config = config.replace({"local_steps": 1})
        chosen.append(Reason("the seats of a crew take each step together", "local_steps", "1"))
    n_hidden = sum(abs(spec.n_hidden) for spec in objective.layout.tensors)
    if config.optimizer.optimizer == "auto" and n_hidden and not objective.task.is_tuned:
        config = config.replace({"optimizer": "muon"})
        what = "a hidden matrix" if n_hidden == 1 else f"{n_hidden} hidden matrices"
        chosen.append(Reason(f"the model has {what}", "optimizer", "muon"))
    n_local = max(config.strategy.local_steps, 1)
    n_steps: float = n_local * config.run.steps
    if config.strategy.population_limit and config.strategy.time_per_step:
        return _with_rate(config, objective, data, chosen, n_steps=n_steps)
    per_s = measure(objective, strategy_of(config), data)
    chosen.append(Reason(f"measured: gradients of {per_s * objective.work_per_member:.3g} {objective.unit}/s"))
    if not config.strategy.population_limit:
        limit = min(max(round(GRADIENT_STEP_S * per_s), 1), MAX_POPULATION)
        most = config.strategy.max_population or min(GROWTH * limit, MAX_POPULATION)
        config = config.replace({"population_limit": min(limit, most), "max_population": most})
        chosen.append(
            Reason(f"{GRADIENT_STEP_S:g} s of gradients", "population_limit", str(config.strategy.population_limit))
        )
    if not config.strategy.time_per_step:
        expected_s = n_local * config.strategy.population_limit / per_s
        config = with_deadline(config, expected_s, chosen, follows_lines=not config.strategy.local_steps)
    in_time = config.run.duration * per_s / config.strategy.population_limit
    n_steps = min(filter(None, (n_steps, in_time)), default=0.0)
    return _with_rate(config, objective, data, chosen, n_steps=n_steps)


def with_deadline(
    config: RunConfig, expected_s: float, chosen: list[Reason], *, follows_lines: bool = False
) -> RunConfig:
    """The configuration with a `time_per_step`, by the seconds that this machine needs; the reason is added."""
    least, more = (LINES_DEADLINE_S, ", and no less for slow lines") if follows_lines else (DEADLINE_S[0], "")
    deadline = min(max(float(math.ceil(4.0 * expected_s)), least), DEADLINE_S[1])
    why = f"four times the {expected_s:.2g} s that this machine needs{more}"
    chosen.append(Reason(why, "time_per_step", f"{deadline:g}"))
    return config.replace({"time_per_step": deadline})


def _with_rate(
    config: RunConfig, objective: TaskObjective, data: Columns, chosen: list[Reason], *, n_steps: float
) -> tuple[RunConfig, Reasons]:
    """Adds the learning rate, where none was given, by the size of a step, how many there are, 0 where nobody knows,
    and the width of the model."""
    if config.optimizer.learning_rate:
        return config, tuple(chosen)
    optimizer = OPTIMIZERS[optimizer_name(config.optimizer.optimizer)]
    # An optimizer that begins far above Adam's rate has less far to go: at 7 times Adam's a classifier overshoots.
    most = MOST_LEARNING_RATE * min(optimizer.rate_to_adam, MOST_TO_ADAM)
    of_matrices = min(LEARNING_RATE * optimizer.rate_to_adam * math.sqrt(config.strategy.population_limit), most)
    if objective.task.is_tuned:
        rate, most = (TUNING_SHARE * each / _wider(objective.layout) for each in (of_matrices, most))
        why = "good weights are tuned by small steps, the smaller the wider a model is"
        config = config.replace({"learning_rate": rate, "max_learning_rate": most})
        return config, (*chosen, Reason(why, "learning_rate", f"{rate:.3g}"))
    shorter = (USUAL_STEPS / n_steps) ** (1 / 3) if n_steps else 1.0
    most *= min(shorter, 1.0)
    rate = min(of_matrices * shorter, most)
    usual = defaults(optimizer)
    if "vector_rate" in usual and config.get("vector_rate") == usual["vector_rate"]:
        config = config.replace({"vector_rate": VECTOR_RATE})
        chosen.append(Reason("a step of a bias moves all rows alike", "vector_rate", f"{VECTOR_RATE:g}"))
    width = _width(objective.layout)
    first = {"learning_rate": of_matrices}
    if "matrix_rate" in usual and config.get("matrix_rate") == usual["matrix_rate"] and width:
        wider = _wider(objective.layout)
        first = {"learning_rate": of_matrices / wider, "matrix_rate": usual["matrix_rate"] * wider}
        rate, most = rate / wider, most / wider
        if rate != of_matrices:
            ratio = usual["matrix_rate"] * of_matrices / rate
            config = config.replace({"matrix_rate": ratio})
            why = f"other tensors step less where a model, here {width:g}, is wide, and in long runs"
            chosen.append(Reason(why, "matrix_rate", f"{ratio:.3g}"))
    stepping = strategy_of(config.replace(first)).optimizer
    factor = longer(objective, stepping, data, n_groups=config.strategy.population_limit)
    if optimizer.usual_decay and not config.optimizer.weight_decay:
        decay = optimizer.usual_decay / math.sqrt(factor)  # larger targets need larger weights
        config = config.replace({"weight_decay": decay})
        why = "hidden matrices would wander where little is left to learn"
        chosen.append(Reason(why, "weight_decay", f"{decay:g}"))
    config = config.replace({"learning_rate": factor * rate, "max_learning_rate": factor * most})
    if not config.strategy.restarts:
        config = config.replace({"restarts": RESTARTS})
        chosen.append(Reason("a third of the rate is tried where the loss stands still", "restarts", str(RESTARTS)))
    of_so_many = f" in runs of about {n_steps:,.0f} steps" if n_steps else ""
    why = f"it suits most networks{of_so_many}; with more volunteers it follows the root of the gradients in a step"
    if factor > 1.0:
        many = f"{USUAL * factor:,.0f} such steps at once"
        why = f"{factor:.3g} times what suits most networks: the loss is least after {many}"
    return config, (*chosen, Reason(why, "learning_rate", f"{factor * rate:.3g}"))


def _wider(layout: ParameterLayout) -> float:
    """How many times as wide as usual a model is, 1 to MOST_WIDTH / USUAL_WIDTH."""
    return min(max(_width(layout), USUAL_WIDTH), MOST_WIDTH) / USUAL_WIDTH


def _width(layout: ParameterLayout) -> float:
    """The shorter side of hidden matrices, in the median, or the inputs of another matrix, such as a head, if these are
    more; 0 where there are no hidden matrices."""
    shorter = [min(spec.hidden_sides) for spec in layout.tensors for _ in range(abs(spec.n_hidden))]
    n_inputs = [spec.shape[1] for spec in layout.tensors if len(spec.shape) == 2 and not spec.n_hidden]
    return max([median(shorter), *n_inputs]) if shorter else 0.0
