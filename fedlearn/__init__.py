"""Train neural networks on machines that come and go, from losses alone or by gradients."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlearn import launch
    from fedlearn.callback import Callback
    from fedlearn.library.black_box import executable, http_service
    from fedlearn.library.tensorboard import TensorBoard
    from fedlearn.library.trained import Trained, load
    from fedlearn.library.training import train
    from fedlearn.tasks.environment import environment
    from fedlearn.tasks.function import function
    from fedlearn.tasks.function.evolution import EvolutionStrategy
    from fedlearn.tasks.function.minimization import Minimum
    from fedlearn.tasks.function.minimize import minimize
    from fedlearn.tasks.task import Batch, Members, Task
    from fedlearn.tasks.torch.reward import reward
    from fedlearn.tasks.torch.supervised import supervised

__version__ = "0.1.0"

_PLACES = {
    "Batch": "fedlearn.tasks.task",
    "Callback": "fedlearn.callback",
    "EvolutionStrategy": "fedlearn.tasks.function.evolution",
    "Members": "fedlearn.tasks.task",
    "Minimum": "fedlearn.tasks.function.minimization",
    "Task": "fedlearn.tasks.task",
    "TensorBoard": "fedlearn.library.tensorboard",
    "Trained": "fedlearn.library.trained",
    "environment": "fedlearn.tasks.environment",
    "executable": "fedlearn.library.black_box",
    "function": "fedlearn.tasks.function",
    "http_service": "fedlearn.library.black_box",
    "load": "fedlearn.library.trained",
    "minimize": "fedlearn.tasks.function.minimize",
    "reward": "fedlearn.tasks.torch.reward",
    "supervised": "fedlearn.tasks.torch.supervised",
    "train": "fedlearn.library.training",
}
"""The module of each public name, imported when the name is first used, since some import PyTorch."""

__all__ = [
    "Batch",
    "Callback",
    "EvolutionStrategy",
    "Members",
    "Minimum",
    "Task",
    "TensorBoard",
    "Trained",
    "environment",
    "executable",
    "function",
    "http_service",
    "launch",
    "load",
    "minimize",
    "reward",
    "supervised",
    "train",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (a module's names are anything)
    if name == "launch":  # a room, not a value in one
        return import_module("fedlearn.launch")
    if name not in _PLACES:
        raise AttributeError(f"module 'fedlearn' has no attribute {name!r}")
    try:
        return getattr(import_module(_PLACES[name]), name)
    except ModuleNotFoundError as error:
        from fedlearn.storage.packages import add_remedy

        add_remedy(error, f"fedlearn.{name}")
        raise


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
