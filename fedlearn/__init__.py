"""Train neural networks forward only, by evolution strategies, on machines that come and go."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlearn.callback import Callback
    from fedlearn.simulation.training import Trained, train
    from fedlearn.tasks.environment import environment
    from fedlearn.tasks.function import function
    from fedlearn.tasks.task import Batch, Members, Task
    from fedlearn.tasks.torch.reward import reward
    from fedlearn.tasks.torch.supervised import supervised

__version__ = "0.1.0"

_PLACES = {
    "Callback": "fedlearn.callback",
    "Batch": "fedlearn.tasks.task",
    "Members": "fedlearn.tasks.task",
    "Task": "fedlearn.tasks.task",
    "Trained": "fedlearn.simulation.training",
    "environment": "fedlearn.tasks.environment",
    "function": "fedlearn.tasks.function",
    "reward": "fedlearn.tasks.torch.reward",
    "supervised": "fedlearn.tasks.torch.supervised",
    "train": "fedlearn.simulation.training",
}
"""Where each public name lives; it is imported when it is first asked for, since some bring PyTorch along."""

__all__ = [
    "Batch",
    "Callback",
    "Members",
    "Task",
    "Trained",
    "environment",
    "function",
    "reward",
    "supervised",
    "train",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (a module's names are anything)
    if name not in _PLACES:
        raise AttributeError(f"module 'fedlearn' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
