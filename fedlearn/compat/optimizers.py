"""Optimizers as PyTorch's users name them, as settings of a run."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch

from fedlearn.tasks.task import Setting

LrScheduler = type[torch.optim.lr_scheduler.LRScheduler]

_NAMES = {"lr": "learning_rate", "weight_decay": "weight_decay", "momentum": "beta1"}
_DEFAULT_LR = {torch.optim.Adam: 1e-3, torch.optim.AdamW: 1e-3, torch.optim.SGD: 1e-3}


def settings_of(optimizer: type[torch.optim.Optimizer], options: Mapping[str, Any]) -> dict[str, Setting]:
    """The settings of a run that stand for an optimizer's class and its arguments.

    Raises:
        ValueError: there is no such optimizer here, or an argument has no meaning here.
    """
    if optimizer not in _DEFAULT_LR:
        known = ", ".join(sorted(each.__name__ for each in _DEFAULT_LR))
        raise ValueError(f"optimizer: expected one of torch.optim's {known}, got {optimizer.__name__}; take Adam")
    is_sgd = optimizer is torch.optim.SGD
    settings: dict[str, Setting] = {
        "optimizer": "sgd" if is_sgd else "adam",
        "learning_rate": _DEFAULT_LR[optimizer],
        "learning_rate_schedule": "constant",
        **({"beta1": 0.0} if is_sgd else {}),
    }
    for name, value in options.items():
        if name == "betas" and not is_sgd:
            settings["beta1"], settings["beta2"] = map(float, value)
        elif name in ("lr", "momentum" if is_sgd else "lr") or (name == "weight_decay" and _is_meant(optimizer, value)):
            settings[_NAMES[name]] = float(value)
        else:
            own = "momentum" if is_sgd else "betas"
            raise ValueError(
                f"optimizer: expected lr, {own}, or weight_decay of AdamW, which decouples it, for "
                f"{optimizer.__name__}, got {name}={value!r}; leave it out"
            )
    return settings


def rate_factors(scheduler: LrScheduler | None, options: Mapping[str, Any], rate: float, *, epochs: int) -> list[float]:
    """The factors on the learning rate in each epoch, as PyTorch's own scheduler has them; empty without one.

    Where it has no more steps, the last factor stays.
    """
    if scheduler is None:
        return []
    found: list[float] = []
    stand_in = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate, momentum=0.9)
    made = scheduler(stand_in, **options)
    with suppress(ValueError):  # of a scheduler whose steps are over
        for _ in range(epochs):
            found.append(float(stand_in.param_groups[0]["lr"]) / rate)
            stand_in.step()
            made.step()
    return found


def follows_figures(scheduler: LrScheduler | None) -> bool:
    """Whether a scheduler goes by what is measured, which is not known before."""
    return scheduler is not None and issubclass(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)


def _is_meant(optimizer: type[torch.optim.Optimizer], weight_decay: float) -> bool:
    """Whether fedlearn has this weight decay, which is always decoupled and never part of the gradient."""
    return optimizer is torch.optim.AdamW or weight_decay == 0
