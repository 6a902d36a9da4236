"""The choice of what volunteers of a user's task measure: losses, or gradients."""

import numpy as np

from fedlearn.config import ConfigError, RunConfig
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.reason import Reason, Reasons
from fedlearn.tasks.task import NoGradientError, listed
from fedlearn.tasks.user.task_objective import TaskObjective

TELLING_NOISE = 0.02
"""The deviation of noise on tensors without a gradient, by which it is seen whether losses depend on them."""

TELLING_CHANGE = 1e-4
"""The change of a loss, as a share of it, that is more than rounding."""

N_REPEATED = 8
"""Times that a loss is computed again, which may draw what PyTorch's seeds do not decide."""

UNUSED_SIGMA = 1.0
"""The deviation of noise that there is not."""


def choose_measure(config: RunConfig, objective: TaskObjective, data: Columns) -> tuple[RunConfig, Reasons]:
    """The configuration with a value for `measure`, and the reason where it was chosen here.

    Raises:
        ConfigError: gradients are wanted, and the task has none.
    """
    wanted = config.strategy.measure
    if wanted == "losses":
        return config, ()
    if wanted == "auto" and not objective.task.is_differentiable:
        return config.replace({"measure": "losses"}), ()
    if objective.task.is_differentiable and (named := _names_noise(config)):
        if wanted == "gradients":
            raise ConfigError(
                f"measure: expected losses with {named}, got gradients, which have no noise; leave one out"
            )
        return _losses(config, f"{named} goes with noise")
    try:
        hidden = parts_without_gradient(objective, data)
        if hidden and wanted == "auto":
            raise NoGradientError(
                f"losses depend on {listed(hidden)}, and the gradient that PyTorch finds says nothing of that, as"
                " behind rounding, detach() or a checkpoint of data alone with use_reentrant=True"
            )
    except NoGradientError as error:
        if wanted == "gradients":
            raise ConfigError(f"measure: expected losses, got gradients: {error}") from error
        return _losses(config, str(error))
    if wanted == "gradients":
        return config, ()
    return config.replace({"measure": "gradients"}), (Reason(objective.task.gradient_reason, "measure", "gradients"),)


def _losses(config: RunConfig, why: str) -> tuple[RunConfig, Reasons]:
    return config.replace({"measure": "losses"}), (Reason(why, "measure", "losses"),)


def _names_noise(config: RunConfig) -> str:
    """The first setting that goes with noise alone; empty where there is none."""
    strategy = config.strategy
    # A run of gradients that is repeated has the values that stand for no noise.
    unused = (UNUSED_SIGMA, 1) if strategy.measure == "gradients" else (0.0, 0)
    ties = (
        ("sigma", strategy.sigma, strategy.sigma not in (0.0, unused[0])),
        ("group_size", strategy.group_size, strategy.group_size not in (0, unused[1])),
        ("antithetic", strategy.antithetic, strategy.antithetic),
        ("rank", strategy.rank, strategy.rank != 1),
        ("fitness_shaping", strategy.fitness_shaping, strategy.fitness_shaping != "normalized"),
        ("sigma_schedule", strategy.sigma_schedule, strategy.sigma_schedule != "constant"),
    )
    return next((f"{key} = {str(value).lower()}" for key, value, is_tied in ties if is_tied), "")


def parts_without_gradient(objective: TaskObjective, data: Columns) -> list[str]:
    """The tensors whose gradient is zero at the initial weights, although losses change with them.

    That PyTorch's gradient explains how losses change is not asked for: a stop of the gradient in the user's code is
    meant, and where a layer norm begins at zero, a gradient holds for noise far below what losses show.

    Raises:
        NoGradientError: the task has no gradient, or it is zero or not finite.
    """
    weights = objective.initial_weights()
    found = objective.first_gradient(weights, data)
    if not found.total.any() and objective.task.is_tuned:
        return []  # as of a reward that few texts get, or that is not finite for one of the first
    if not np.isfinite(found.losses).all():
        raise NoGradientError("the gradient at the initial weights is not finite")
    if not found.total.any():
        raise NoGradientError("the gradient at the initial weights is zero")
    silent = [name for name, part in objective.layout.split(found.total).items() if not part.any()]

    def changes_loss(*names: str) -> bool:
        moved = weights.copy()
        parts, generator = objective.layout.split(moved), np.random.default_rng(0)
        for name in names:
            parts[name] += TELLING_NOISE * generator.standard_normal(parts[name].shape, dtype=np.float32)
        losses = objective.first_gradient(moved, data).losses
        return not np.allclose(losses, found.losses, rtol=TELLING_CHANGE, atol=0.0)

    if not silent or not changes_loss(*silent):
        return []
    # A loss that is another one now and then tells nothing.
    if any(changes_loss() for _ in range(N_REPEATED)):
        return []
    return [name for name in silent if changes_loss(name)]
