"""Optimizers: the rules that turn a gradient estimate into a step, as values that travel in an Update."""

from fedlearn.es.optimizers.adam import Adam
from fedlearn.es.optimizers.arithmetic import exact_arithmetic
from fedlearn.es.optimizers.hyperparameters import defaults
from fedlearn.es.optimizers.optimizer import GradientPart, Optimizer, SearchStep, TensorStep
from fedlearn.es.optimizers.registry import (
    HYPERPARAMETERS,
    MOST_SLOTS,
    OPTIMIZERS,
    AnyOptimizer,
    optimizer_name,
    optimizer_of,
)
from fedlearn.es.optimizers.sgd import Sgd

__all__ = [
    "HYPERPARAMETERS",
    "MOST_SLOTS",
    "OPTIMIZERS",
    "Adam",
    "AnyOptimizer",
    "GradientPart",
    "Optimizer",
    "SearchStep",
    "Sgd",
    "TensorStep",
    "defaults",
    "exact_arithmetic",
    "optimizer_name",
    "optimizer_of",
]
