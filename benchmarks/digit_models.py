"""The two networks of benchmarks/digits.py, as tasks: `mlp` and `cnn`."""

import importlib.util
from pathlib import Path
from types import ModuleType

from torch import nn

import fedlearn


def _example() -> ModuleType:
    path = Path(__file__).parents[1] / "examples" / "digits.py"
    spec = importlib.util.spec_from_file_location("digits_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_digits = _example()


def network() -> nn.Module:
    """6,090 parameters."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


mlp = _digits.task
cnn = fedlearn.supervised(
    network,
    _digits.loss,
    _digits.data,
    batch_size=128,
    metrics={"accuracy": _digits.accuracy},
    settings={"sigma": 0.05, "learning_rate": 0.03},
)
