"""A loss that is a plain function of named arrays, with data or without."""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.function.covariance import LARGEST_FULL, CovarianceSearch
from fedlearn.tasks.members import ArrayMembers
from fedlearn.tasks.signatures import check_takes, named_values
from fedlearn.tasks.task import Batch, Members, Setting, Task, layout_of

POPULATION = (16, 256)
"""The least and the most members of a step of a function without data: small populations make more steps possible."""

MOST_CORRELATED = 1000
"""The most numbers whose covariances a factor can hold: it has as many elements as they have pairs."""

MOST_DIAGONAL = 100_000
"""The most numbers whose variances are learned where a task does not say: with as many, no loss is lower for it after
30,000 evaluations, and a step takes three to eight times as long."""

Covariance = bool | Literal["diagonal"]
"""What a task's noise learns: covariances of all pairs, nothing, or variances alone."""

FACTOR = "noise.factor"

SEARCH: Mapping[str, Setting] = {
    "optimizer": "cma",
    "learning_rate_schedule": "constant",
    "fitness_shaping": "centered-ranks",
    "rank": 0,
}
"""Settings of a task whose noise learns the shape of the function's valley."""

Loss = Callable[..., Any]
"""A function `loss(arrays)`, or `loss(arrays, rows)` for a task with data, that gives one number or an array of one."""


def function(
    loss: Loss,
    start: Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    *,
    batch_size: int = 1,
    held_out: Mapping[str, Any] | None = None,
    vectorized: bool = False,
    workers: int = 1,
    covariance: Covariance | None = None,
    scales: Mapping[str, float] | None = None,
    settings: Mapping[str, Setting] | None = None,
) -> "FunctionTask":
    """A task that minimizes a plain function of named arrays, beginning at `start`.

    `loss(arrays)` gives one number; with `data`, named columns of one length, it is `loss(arrays, rows)` and `rows` are
    `batch_size` rows of each column. A vectorized loss is given all members at once, each array as [members, ...] and
    each column as [members, batch_size, ...], and gives [members]. Each volunteer calls the loss in so many threads
    as it has `workers`, which helps where the loss waits: for a service or another process. The run reports the loss
    of the unperturbed arrays on the rows of `held_out`, or without data.

    With `covariance` the noise learns the shape of the function's valley by the optimizer `cma`. True takes a matrix
    [n, n] for n numbers, at most 1,000, "diagonal" a vector [n], a deviation for each number; either lies beside the
    arrays as `noise.factor`. False does without. None, where there are no data, and neither another optimizer nor a
    learning rate in `settings`, stands for True from 2 to 200 numbers and for "diagonal" from 201 to 100,000; else it
    stands for False.

    Raises:
        ValueError: an array of `start` holds something else than finite numbers, columns do not fit together, the
            loss takes other arguments, workers are asked for where it takes all members at once, or covariance is
            another value, or True of too many numbers.
    """
    check_takes("loss", loss, "arrays", *(["rows"] if data else []))
    given, scaled = named_values("settings", settings), named_values("scales", scales)
    arrays = {name: as_start(name, array) for name, array in named_values("start", start).items()}
    searched = layout_of({name: array.shape for name, array in arrays.items()}, scaled, {}, {}).searched
    if covariance is None:
        is_open = given.get("optimizer", "cma") == "cma" and "learning_rate" not in given
        covariance = _usual_covariance(searched.size) if is_open and not data else False
    return FunctionTask(
        loss,
        start=arrays,
        factor=_first_factor(searched.size, covariance),
        data=_as_columns("data", data),
        held_out=_as_columns("held_out", held_out),
        batch_size=batch_size,
        vectorized=vectorized,
        workers=workers,
        scales=scaled,
        settings=given,
    )


@final
class FunctionTask(Task):
    """The task that `function` makes."""

    kind: ClassVar[str] = "function"

    def __init__(
        self,
        loss: Loss,
        *,
        start: Mapping[str, Float32Array],
        factor: Float32Array | None,
        data: Columns,
        held_out: Columns,
        batch_size: int,
        vectorized: bool,
        workers: int,
        scales: Mapping[str, float],
        settings: Mapping[str, Setting],
    ) -> None:
        if not start:
            raise ValueError("start: expected at least one array to train, got none")
        if batch_size < 1:
            raise ValueError(f"batch_size: expected 1 or more, got {batch_size}")
        if workers < 1 or (vectorized and workers > 1):
            raise ValueError(f"workers: expected 1 or more, and 1 for a vectorized loss, got {workers}")
        if held_out and sorted(held_out) != sorted(data):
            raise ValueError(f"held_out: expected the columns of data {sorted(data)}, got {sorted(held_out)}")
        self._loss, self._start, self._vectorized, self._workers = loss, start, vectorized, workers
        self.data, self.held_out, self.batch_size = data, held_out, batch_size
        self.scales, self.settings, self._factor = scales, settings, dict[str, Float32Array]()
        if factor is not None:
            self._factor, self.statistics = {FACTOR: factor}, {FACTOR: "factor"}
            self.scales = {FACTOR: 0.0, **scales}
            sigma = _usual_sigma(start) * min(1.0, math.sqrt(LARGEST_FULL / len(factor)))
            self.settings = {**SEARCH, "sigma": sigma, **settings}

    @property
    def tensors(self) -> Mapping[str, Float32Array]:
        return {**self._start, **self._factor}

    @property
    def usual_population(self) -> int:
        """Two members for each parameter, within bounds, or as many as covariances need; with data 0, which means as
        many as fill a step."""
        if self._factor:
            return CovarianceSearch.usual_population(self.layout.searched.size)
        least, most = POPULATION
        return 0 if self.data else min(max(least, 2 * self.layout.size), most)

    def losses(self, members: Members, batch: Batch) -> Float32Array:
        rows = (batch.rows,) if self.data else ()
        assert isinstance(members, ArrayMembers)
        if self._vectorized:
            repeated = ({k: v.repeat(members.group_size, axis=0) for k, v in columns.items()} for columns in rows)
            return self._checked(self._loss(self._own(members.stacked()), *repeated), (len(members),))
        losses: Float32Array = members(self._checked_loss, *rows, workers=self._workers)
        return losses

    def evaluate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:  # noqa: ARG002
        if self.data and not self.held_out:
            return {}
        arrays = self.layout.split(weights.copy())
        rows = (dict(self.held_out),) if self.data else ()
        if self._vectorized:
            one = [
                {name: array[np.newaxis].copy() for name, array in named.items()}
                for named in (self._own(arrays), *rows)
            ]
            return {"loss": float(self._checked(self._loss(*one), (1,))[0])}
        return {"loss": float(self._checked_loss(arrays, *rows))}

    def _checked_loss(self, arrays: Mapping[str, Float32Array], *rows: Any) -> Float32Array:  # noqa: ANN401
        return self._checked(self._loss(self._own(arrays), *rows), ())

    def _own(self, arrays: Mapping[str, Float32Array]) -> dict[str, Float32Array]:
        """The arrays that the user's function knows."""
        return {name: arrays[name] for name in self._start}

    def _checked(self, losses: Any, shape: tuple[int, ...]) -> Float32Array:  # noqa: ANN401
        """The losses as float32; one too large for that becomes infinite, and does not count."""
        try:
            found = np.asarray(losses)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"loss: expected a number, got {type(losses).__name__}: {error}") from error
        if not shape and found.size == 1:
            found = found.reshape(())
        if found.shape != shape or found.dtype.kind not in "iuf":
            expected = f"{shape[0]} numbers, one a member" if shape else "one number"
            remedy = "is the loss vectorized?" if found.shape[:1] and not shape else "return a float or float array"
            raise ValueError(f"loss: expected {expected}, got {_described(losses, found)}; {remedy}")
        with np.errstate(over="ignore"):
            return found.astype(np.float32)


def _usual_covariance(n: int) -> Covariance:
    """What suits so many numbers."""
    if n <= LARGEST_FULL:
        return n >= 2
    return "diagonal" if n <= MOST_DIAGONAL else False


def _first_factor(n: int, covariance: Covariance) -> Float32Array | None:
    """The factor that noise of n numbers begins with; None without."""
    if not isinstance(covariance, bool) and covariance != "diagonal":
        raise ValueError(f"covariance: expected True, False or 'diagonal', got {covariance!r}")
    if covariance == "diagonal":
        return np.ones(n, dtype=np.float32)
    if covariance and n > MOST_CORRELATED:
        raise ValueError(f"covariance: expected at most {MOST_CORRELATED} numbers with True, or 'diagonal', got {n}")
    return np.eye(n, dtype=np.float32) if covariance else None


def _usual_sigma(start: Mapping[str, Float32Array]) -> float:
    """Half of a usual distance to the answer: of the root mean square of the start, or of 1."""
    numbers = np.concatenate([array.ravel() for array in start.values()]).astype(np.float64)
    return max(0.5, 0.5 * math.sqrt((numbers**2).mean()))


def _described(value: object, array: NDArray[Any]) -> str:
    if array.dtype.kind == "O" or not array.shape:
        return f"{type(value).__name__} {str(value)[:40]!r}"
    return f"{array.dtype} {list(array.shape)}"


def as_start(name: str, array: object) -> Float32Array:
    try:
        with np.errstate(over="ignore"):  # too large a number becomes infinity, which is refused below
            start = np.array(array, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"start: expected numbers for {name}: {error}") from error
    if start.size == 0 or not np.isfinite(start).all():
        found = "none" if start.size == 0 else "nan or infinity"
        raise ValueError(f"start: expected finite numbers for {name}, got {found}")
    start.flags.writeable = False
    return start


def _as_columns(what: str, data: Mapping[str, Any] | None) -> Columns:
    columns = {name: np.asarray(column).view() for name, column in (data or {}).items()}
    for column in columns.values():
        column.flags.writeable = False  # since all members share it
    lengths = {name: column.shape[0] if column.ndim else 0 for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        named = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"{what}: expected columns of one length of at least 1, got {named}")
    return columns
