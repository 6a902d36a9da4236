"""Ask and tell for one process: the noise, the shaping and the step of a run, without server or volunteers.

Source: that of `fedlearn.es.strategy`, whose `ask` and `tell` are used here.
"""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.noise import member_noise
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.schedules import Schedule
from fedlearn.es.shaping import SHAPINGS
from fedlearn.es.strategy import Population, Strategy, ask, tell
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from fedlearn.tasks.function.task import as_start
from fedlearn.tasks.members import ArrayMembers

POPULATION = (32, 256)
"""The least and the most members of a step by default; between them there are two for each parameter."""

UNIT_HOLDS = 1000.0
"""The number of units that losses may spread over before a larger unit is chosen, since the core bounds losses."""

FAR_OUT = 30.0
"""The greatest distance of a loss from the middle, in multiples of the usual distance; losses beyond count as if they
were there. A loss a million times larger than the others would hide the others' differences from every later step."""

LARGEST = 1e150
"""The largest loss, which larger ones count as; float64 can't hold the squares of larger ones."""

Named = dict[str, Float32Array]
Arrays = TypeVar("Arrays", Float32Array, Named)
"""One array, or arrays by name, as the search began with."""


def usual_population(n_parameters: int) -> int:
    """The number of members of a step by default."""
    return min(max(POPULATION[0], 2 * n_parameters), POPULATION[1])


@final
class EvolutionStrategy(Generic[Arrays]):
    """An evolution strategy with ask and tell: it minimizes losses that the caller computes.

    `sigma` is the standard deviation of the noise; a tenth of the expected distance from `x0` to the answer is a good
    start. The `learning_rate` is Adam's, about the most that a parameter moves in a step; half of sigma by default.
    With `steps` both fall linearly until then, sigma to a tenth; without, the search never settles. A `rank` above 0
    perturbs matrices by products of that rank.

    >>> import numpy as np
    >>> es = EvolutionStrategy(np.full(5, 2.0), steps=300)
    >>> for _ in range(300):
    ...     members = es.ask()
    ...     es.tell((members**2).sum(axis=1))
    >>> members.shape, bool(np.abs(es.weights).max() < 1e-3)
    ((32, 5), True)

    Raises:
        ValueError: `x0` holds something else than finite numbers, or a setting is out of its range.
    """

    @overload
    def __init__(
        self: "EvolutionStrategy[Named]",
        x0: Mapping[str, ArrayLike],
        *,
        sigma: float = ...,
        learning_rate: float | None = ...,
        population: int = ...,
        steps: int = ...,
        seed: int = ...,
        rank: int = ...,
        fitness_shaping: str = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: "EvolutionStrategy[Float32Array]",
        x0: ArrayLike,
        *,
        sigma: float = ...,
        learning_rate: float | None = ...,
        population: int = ...,
        steps: int = ...,
        seed: int = ...,
        rank: int = ...,
        fitness_shaping: str = ...,
    ) -> None: ...
    def __init__(
        self,
        x0: Mapping[str, ArrayLike] | ArrayLike,
        *,
        sigma: float = 0.1,
        learning_rate: float | None = None,
        population: int = 0,
        steps: int = 0,
        seed: int = 0,
        rank: int = 0,
        fitness_shaping: str = "normalized",
    ) -> None:
        self._is_named = isinstance(x0, Mapping)
        named = x0 if isinstance(x0, Mapping) else {"x0": x0}
        if not named:
            raise ValueError("x0: expected at least one array to search from, got none")
        if fitness_shaping not in SHAPINGS:
            raise ValueError(f"fitness_shaping: expected one of {', '.join(SHAPINGS)}, got {fitness_shaping!r}")
        tensors = {name: as_start(name, array) for name, array in named.items()}
        layout = ParameterLayout(tuple(TensorSpec(name, tensor.shape) for name, tensor in tensors.items()))
        self.population = population or usual_population(layout.size)
        """Number of members of a step."""
        rate = sigma / 2 if learning_rate is None else learning_rate
        _check(sigma=sigma, learning_rate=rate, population=self.population, steps=steps, rank=rank, seed=seed)
        self._strategy = Strategy(
            perturbation=Perturbation(sigma, rank, antithetic=True),
            group_size=self.population,
            population_limit=self.population,
            optimizer=Adam(rate),
            fitness_shaping=fitness_shaping,
            schedule=Schedule("linear", "linear", steps=steps) if steps else Schedule(),
        )
        start = np.concatenate([tensor.ravel() for tensor in tensors.values()])
        self._replica = Replica(layout, genesis(layout, start), seed=seed, row_masks=lambda _: None, threads=1)
        self._last: Update | None = None
        self._asked: tuple[Population, Named] | None = None
        self._unit = 0.0
        self.best: Arrays = self.weights
        """The member with the least loss so far; if losses are noisy it was only lucky, and `weights` are more
        reliable."""
        self.best_loss = np.inf

    @property
    def step(self) -> int:
        """Number of steps taken."""
        return self._replica.step

    @property
    def weights(self) -> Arrays:
        """A copy of the unperturbed weights, around which members are drawn."""
        return self._given(self._replica.layout.split(self._replica.weights.copy()))

    def ask(self) -> Arrays:
        """The members of this step, [population, *shape] for each array; the same ones until `tell` is called.

        They are copies, which the caller may change.
        """
        if self._asked is None:
            replica = self._replica
            population = ask(self._strategy, replica.step, self._last)
            trials = Trials(replica.step, population.perturbation, population.group_size, 0, population.limit)
            noise = member_noise(replica.layout, trials, seed=replica.seed)
            members = ArrayMembers(replica.layout.split(replica.weights), noise, n_groups=1)
            self._asked = population, members.stacked()
        return self._given({name: array.copy() for name, array in self._asked[1].items()})

    def tell(self, losses: ArrayLike) -> None:
        """Takes a step by the losses of the members that `ask` gave, in their order; lower is better.

        A loss that is not finite counts as the worst of the others, and one far from all others as a nearer one.

        Raises:
            ValueError: there are more or fewer losses than members, or `ask` was not called before.
        """
        if self._asked is None:
            raise ValueError("tell: expected a call of ask before it, got none; call ask before each tell")
        population, members = self._asked
        found = np.asarray(losses, dtype=np.float64)
        if found.shape != (population.limit,):
            raise ValueError(
                f"losses: expected [{population.limit}], one per member, got {list(found.shape)}; "
                "one number for each row of what ask gave"
            )
        self._keep_best(found, members)
        self._last = tell(
            self._strategy,
            population,
            block=b"",
            spans=((0, population.limit),),
            losses=self._scaled(found),
            duration_s=0.0,
        )
        self._replica.apply(self._last)
        self._asked = None

    def _keep_best(self, losses: NDArray[np.float64], members: Named) -> None:
        number = int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))
        if losses[number] < self.best_loss:
            self.best_loss = float(losses[number])
            self.best = self._given({name: array[number].copy() for name, array in members.items()})

    def _scaled(self, losses: NDArray[np.float64]) -> Float32Array:
        """The losses relative to their middle, in a unit in which float32 holds their differences."""
        is_finite = np.isfinite(losses)
        if not is_finite.any():
            return np.zeros(losses.shape, dtype=np.float32)
        filled = np.clip(np.where(is_finite, losses, losses[is_finite].max()), -LARGEST, LARGEST)
        middle = float(np.median(filled))
        if (far := FAR_OUT * float(np.median(np.abs(filled - middle)))) > 0.0:
            filled = np.clip(filled, middle - far, middle + far)
        centered = filled - filled.mean()
        spread = float(centered.std())
        if spread > UNIT_HOLDS * self._unit:
            self._unit = spread
        return np.asarray(centered / (self._unit or 1.0), dtype=np.float32)

    def _given(self, arrays: Named) -> Arrays:
        """The arrays in the form of `x0`."""
        return cast(Arrays, arrays if self._is_named else arrays["x0"])


def _check(**settings: Any) -> None:  # noqa: ANN401 (numbers of several kinds)
    limits = {"sigma": 0.0, "learning_rate": 0.0, "population": 2, "steps": 0, "rank": 0, "seed": 0}
    for name, least in limits.items():
        if not settings[name] >= least or not np.isfinite(settings[name]):
            raise ValueError(f"{name}: expected {least} or more, got {settings[name]}")
    if settings["sigma"] == 0.0:
        raise ValueError("sigma: expected more than 0, got 0; without noise all members are equal")
    if settings["population"] % 2:
        raise ValueError(
            f"population: expected an even number, since members come in pairs, got {settings['population']}"
        )
