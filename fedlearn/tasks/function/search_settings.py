"""Settings of a search that few need, each with the value that suits most functions."""

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from fedlearn.config.nearest import did_you_mean
from fedlearn.tasks.function.evaluations import Workers

Method = Literal["covariance", "diagonal", "adam"]

OF_SCIPY: Mapping[str, str] = {
    "args": "give fun what it takes besides x, as functools.partial does",
    "constraints": "let fun give more where one is broken; bounds are kept",
    "hess": "it is not needed",
    "hessp": "it is not needed",
    "jac": "it is not needed",
    "options": "give each of them by its own name, such as maxiter=100",
}
"""What becomes of arguments that only `scipy.optimize.minimize` has."""


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a search is told besides its function, its start and when it ends.

    Raises:
        ValueError: a value is out of its range.
    """

    integrality: Any = False
    """True for numbers that have to be integers."""
    restarts: int = 0
    """The number of searches that follow the first."""
    method: Method = "covariance"
    sigma: float = 0.0
    """The first standard deviation of the members; 0 means half of a usual distance to the answer."""
    population: int = 0
    """The number of members of a step; 0 means as many as are usual."""
    workers: Workers = 1
    """The number of threads that evaluate the function, or a function such as `map` that calls it."""
    vectorized: bool = False
    """Whether the function takes many points at once."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_range(restarts=self.restarts, sigma=self.sigma, seed=self.seed)
        if self.population and not self.population >= 2:
            raise ValueError(f"population: expected 0 or at least 2, got {self.population}; members are compared")
        if not (callable(self.workers) or _is_count(self.workers)):
            raise ValueError(f"workers: expected 1 or more, or a function such as map, got {self.workers}")
        if self.method not in get_args(Method):
            raise ValueError(f"method: expected one of {', '.join(get_args(Method))}, got {self.method!r}")


def search_settings(given: Mapping[str, Any]) -> SearchSettings:
    """The settings with these names.

    Raises:
        ValueError: there is no setting of a name, or a value is out of its range.
    """
    known = SearchSettings.__struct_fields__
    for name in given:
        if name not in known:
            remedy = OF_SCIPY.get(name) or did_you_mean(name, known) or f"there are {', '.join(known)}"
            raise ValueError(f"{name}: expected a setting of minimize, got another name; {remedy}")
    return SearchSettings(**given)


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and int(value) >= 1


def check_range(**settings: float) -> None:
    """Checks that each of these is a number of at least 0.

    Raises:
        ValueError: one is not.
    """
    for name, value in settings.items():
        try:
            is_in_range = 0 <= value < math.inf
        except TypeError:
            is_in_range = False
        if not is_in_range:
            raise ValueError(f"{name}: expected 0 or more, got {value}")
