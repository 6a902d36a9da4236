"""The base of the front ends in `examples/`, which have the names and flags that users of other systems know."""

from fedlearn.compat.crew import await_seat, serve
from fedlearn.compat.layers import Layers
from fedlearn.compat.optimizers import settings_of
from fedlearn.compat.provider import ProviderNode as Node
from fedlearn.compat.provider_trainer import ProviderTrainer as Trainer
from fedlearn.compat.provider_trainer import model_fusion
from fedlearn.compat.roles import clusterize, set_seed
from fedlearn.compat.sharing import SharedBatch

__all__ = [
    "Layers",
    "Node",
    "SharedBatch",
    "Trainer",
    "await_seat",
    "clusterize",
    "model_fusion",
    "serve",
    "set_seed",
    "settings_of",
]
