"""Our own policy in gymnasium's own environments: such a task is a few values, of which none is a user's code."""

from collections.abc import Mapping
from functools import cached_property
from typing import final

import msgspec
import safetensors.numpy

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.tasks.environment.task import EnvironmentTask, Normalize, environment
from fedlearn.tasks.film import Film
from fedlearn.tasks.kind import Examiner

OWN = "gymnasium."
"""The beginning of the modules of gymnasium's own environments."""


class Registered(msgspec.Struct, frozen=True):
    """The arguments of `environment` by which such a task is made again."""

    env: str
    normalize: Normalize
    max_steps: int


def registered(task: EnvironmentTask) -> Registered | None:
    """The values by which this task is made again; None where it takes a user's code."""
    arguments = task.plain_arguments
    if arguments is None or not is_gymnasiums(arguments[0]):
        return None
    return Registered(*arguments)


def is_gymnasiums(name: str) -> bool:
    """Whether a registered name is that of an environment in gymnasium itself.

    The name is looked up and nothing is imported by it, as `gymnasium.make` does with the name of a module before a
    colon.
    """
    try:
        import gymnasium
    except ModuleNotFoundError:
        return False
    spec = gymnasium.registry.get(name)
    return spec is not None and isinstance(spec.entry_point, str) and spec.entry_point.startswith(OWN)


@final
class RegisteredExaminer(Examiner):
    """An examiner of a run whose task is made again by values alone, when it is first needed."""

    def __init__(self, registered: Registered, layout: ParameterLayout) -> None:
        self._registered, self._layout = registered, layout

    @cached_property
    def _task(self) -> EnvironmentTask:
        env = self._registered.env
        if not is_gymnasiums(env):
            raise ValueError(
                f"env: expected an environment of gymnasium's own, as the run had, got {env!r}, which is none here; "
                "pip install 'fedlearn[gym]', or name the run's task with --task FILE.py:NAME"
            )
        task = environment(env, normalize=self._registered.normalize, max_steps=self._registered.max_steps)
        if _shapes(task.layout) != _shapes(self._layout):
            raise ValueError(
                f"env: expected {env} with the policy that the run began with, got one of other shapes; "
                "use the versions of fedlearn and gymnasium that the run began with"
            )
        return task

    def show(self, loss: float) -> tuple[str, float]:
        return "return", 0.0 - loss  # no -0

    def validate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:
        return self._task.evaluate(weights, threads=threads)

    def film(self, weights: Float32Array) -> Film:
        return self._task.film(weights)

    def state_dict(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        return safetensors.numpy.save(self._layout.split(weights), {"format": "pt", **about})


def _shapes(layout: ParameterLayout) -> list[tuple[str, tuple[int, ...]]]:
    return [(spec.name, spec.shape) for spec in layout.tensors]
