"""Optimizers as PyTorch's users name them, as settings of a run."""

from collections.abc import Mapping
from typing import Any

import torch

from fedlearn.tasks.task import Setting

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


def schedule_of(
    scheduler: type[torch.optim.lr_scheduler.LRScheduler] | None, options: Mapping[str, Any]
) -> tuple[dict[str, Setting], tuple[str, ...]]:
    """The setting of a run that stands for a scheduler, and a note where there is none and the rate stays as it is.

    A rate that falls does so until the run ends, whatever number of epochs the options name.
    """
    if scheduler is None:
        return {}, ()
    if scheduler is torch.optim.lr_scheduler.CosineAnnealingLR and not options.get("eta_min"):
        return {"learning_rate_schedule": "cosine"}, ()
    if scheduler is torch.optim.lr_scheduler.PolynomialLR and options.get("power", 1.0) == 1.0:
        return {"learning_rate_schedule": "linear"}, ()
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return {}, (
        f"lr_scheduler: the rate is constant in place of {scheduler.__name__}({given}); CosineAnnealingLR and "
        "PolynomialLR fall to 0 at the end",
    )


def _is_meant(optimizer: type[torch.optim.Optimizer], weight_decay: float) -> bool:
    """Whether fedlearn has this weight decay, which is always decoupled and never part of the gradient."""
    return optimizer is torch.optim.AdamW or weight_decay == 0
