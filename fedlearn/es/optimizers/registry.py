"""All optimizers: a new one is a file beside this one and a member of the union; all else follows from it."""

from collections.abc import Mapping
from typing import Any, get_args

from fedlearn.es.optimizers.adam import Adam
from fedlearn.es.optimizers.clipup import ClipUp
from fedlearn.es.optimizers.cma import Cma
from fedlearn.es.optimizers.hyperparameters import Hyperparameter, shared, values
from fedlearn.es.optimizers.lion import Lion
from fedlearn.es.optimizers.muon import Muon
from fedlearn.es.optimizers.sgd import Sgd

AnyOptimizer = Adam | Sgd | Lion | Muon | ClipUp | Cma
"""Every optimizer that an Update may name."""

OPTIMIZERS: Mapping[str, type[AnyOptimizer]] = {
    str(optimizer.__struct_config__.tag): optimizer for optimizer in get_args(AnyOptimizer)
}
"""The optimizers by the names that configurations use."""

HYPERPARAMETERS: Mapping[str, Hyperparameter] = shared(OPTIMIZERS)
"""The settings that optimizers declare, by their keys."""

MOST_SLOTS = max(len(optimizer(0.0).slots) for optimizer in OPTIMIZERS.values())
"""The most arrays, each as long as the weights, that an optimizer keeps."""


def optimizer_name(chosen: str) -> str:
    """The optimizer's name; `auto` stands for Adam where a kind of tasks has chosen none."""
    return "adam" if chosen == "auto" else chosen


def optimizer_of(settings: Mapping[str, Any]) -> AnyOptimizer:
    """The optimizer that the settings `optimizer`, `learning_rate` and its hyperparameters stand for."""
    optimizer = OPTIMIZERS[optimizer_name(settings["optimizer"])]
    return optimizer(settings["learning_rate"], **values(optimizer, settings))
