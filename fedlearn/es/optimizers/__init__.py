"""Optimizers: the rules that turn a gradient estimate into a step, as values that travel in an Update."""

from fedlearn.es.optimizers.adam import Adam
from fedlearn.es.optimizers.optimizer import Optimizer
from fedlearn.es.optimizers.registry import OPTIMIZERS, AnyOptimizer
from fedlearn.es.optimizers.sgd import Sgd

__all__ = ["OPTIMIZERS", "Adam", "AnyOptimizer", "Optimizer", "Sgd"]
