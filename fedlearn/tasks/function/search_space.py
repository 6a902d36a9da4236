"""The points among which a function is minimized: arrays of given shapes, between bounds, some of them integers."""

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64Array = NDArray[np.float64]


@final
class SearchSpace:
    """Vectors [n] that stand for an array of the shape of `x0`, or for arrays by the names of `x0`.

    `bounds` is a pair (low, high) for all numbers, or a pair for each, where None means no bound, or, of more than two
    numbers, a list of lows and one of highs, or an object with `lb` and `ub` as `scipy.optimize.Bounds`; `integrality`
    is true for numbers that have to be integers. Where `x0` has names, both are given by name, and a name without an
    entry is free. A number whose bounds are equal stays there, and has no place in the vectors.

    Raises:
        ValueError: `x0` is empty or not finite, or bounds or integrality do not fit it.
    """

    def __init__(
        self,
        x0: Mapping[str, ArrayLike] | ArrayLike,
        bounds: Any = None,  # noqa: ANN401 (forms of scipy's)
        integrality: Any = False,  # noqa: ANN401
    ) -> None:
        self._is_named = isinstance(x0, Mapping)
        named = x0 if isinstance(x0, Mapping) else {"x0": x0}
        arrays = {name: _finite(name, array) for name, array in named.items()}
        if not sum(array.size for array in arrays.values()):
            raise ValueError("x0: expected at least one number to search from, got none")
        self._shapes = {name: array.shape for name, array in arrays.items()}
        self._ends = np.cumsum([array.size for array in arrays.values()])[:-1]
        limits = self._by_name(bounds, "bounds", None)
        pairs = [_limits_of(name, limits[name], array.size) for name, array in arrays.items()]
        self.low = np.concatenate([low for low, _ in pairs])
        """The least values, [n]; -inf where there is none."""
        self.high = np.concatenate([high for _, high in pairs])
        """The greatest values, [n]; inf where there is none."""
        whole = self._by_name(integrality, "integrality", False)
        self.is_integer = np.concatenate([_flags_of(name, whole[name], shape) for name, shape in self._shapes.items()])
        """True where points are rounded, [n]."""
        if self.is_integer.any():
            self.low = np.where(self.is_integer, np.ceil(self.low), self.low)
            self.high = np.where(self.is_integer, np.floor(self.high), self.high)
        if (wrong := np.flatnonzero(self.low > self.high)).size:
            raise ValueError(
                f"bounds: expected low bounds below high ones, got {self.low[wrong[0]]:g} and {self.high[wrong[0]]:g}"
                + (" after rounding to integers" if self.is_integer[wrong[0]] else "")
            )
        self._is_free = self.low < self.high
        self._fixed = self.low
        self.low, self.high, self.is_integer = (
            array[self._is_free] for array in (self.low, self.high, self.is_integer)
        )
        start = np.concatenate([array.ravel() for array in arrays.values()])[self._is_free]
        self.start = self.inside(start[np.newaxis])[0]
        """The point of `x0`, moved between the bounds, [n]."""

    def inside(self, points: Float64Array) -> Float64Array:
        """The nearest points that are allowed, [points, n]."""
        rounded = np.where(self.is_integer, np.round(points), points) if self.is_integer.any() else points
        found: Float64Array = np.minimum(np.maximum(rounded, self.low), self.high)
        return found

    def distances(self, points: Float64Array) -> Float64Array:
        """How far the points are out of bounds, [points, n]."""
        found: Float64Array = np.abs(points - np.minimum(np.maximum(points, self.low), self.high))
        return found

    def given(self, points: Float64Array) -> Any:  # noqa: ANN401 (an array, or arrays by name)
        """Copies of the points in the form of `x0`, with the numbers that are fixed, [points, *shape] each."""
        whole = np.repeat(self._fixed[np.newaxis], len(points), axis=0)
        whole[:, self._is_free] = points
        if not self._is_named:
            return whole.reshape(len(points), *self._shapes["x0"])
        parts = np.split(whole, self._ends, axis=1)
        return {
            name: part.reshape(len(points), *shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def usual_deviations(self) -> Float64Array:
        """Standard deviations with which a search may begin, [n].

        They are a quarter of the distance between two bounds; without bounds half the root mean square of the start,
        and at least 0.5.
        """
        free = max(0.5, 0.5 * float(np.sqrt((self.start**2).mean())))
        distance = self.high - self.low
        return np.asarray(np.where(np.isfinite(distance), np.maximum(0.25 * distance, 1e-300), free))

    def somewhere(self, generator: np.random.Generator, deviations: Float64Array) -> Float64Array:
        """A random point, [n]: anywhere between two bounds, or near the start."""
        near = self.start + deviations * generator.standard_normal(self.start.size)
        share = generator.random(self.start.size)
        is_boxed = np.isfinite(self.high - self.low)
        anywhere = np.where(is_boxed, self.low, 0.0) + share * np.where(is_boxed, self.high - self.low, 0.0)
        return np.asarray(self.inside(np.where(is_boxed, anywhere, near)[np.newaxis])[0])

    def _by_name(self, value: Any, what: str, absent: Any) -> dict[str, Any]:  # noqa: ANN401
        if not self._is_named:
            return {"x0": value}
        if not isinstance(value, Mapping):
            value = {} if value is None or value is False else value
        if not isinstance(value, Mapping) or set(value) - set(self._shapes):
            got = sorted(value) if isinstance(value, Mapping) else value
            raise ValueError(f"{what}: expected a mapping with names among {sorted(self._shapes)} as in x0, got {got}")
        return {name: value.get(name, absent) for name in self._shapes}


def _finite(name: str, array: ArrayLike) -> Float64Array:
    try:
        found = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"x0: expected numbers for {name}, got {array!r}") from None
    if not np.isfinite(found).all():
        raise ValueError(f"x0: expected finite numbers for {name}, got {found[~np.isfinite(found)][0]}")
    return found


def _limits_of(name: str, bounds: Any, size: int) -> tuple[Float64Array, Float64Array]:  # noqa: ANN401
    """The low and high bounds of an array of so many numbers, [size] each."""
    if bounds is None:
        bounds = (None, None)
    try:
        if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
            pair: Sequence[Any] = (bounds.lb, bounds.ub)
        else:
            table = np.array([[np.nan if x is None else x for x in np.ravel(row)] for row in bounds], dtype=np.float64)
            if table.shape not in ((2, 1), (2, size), (size, 2)):
                raise ValueError
            pair = (table[:, 0], table[:, 1]) if table.shape == (size, 2) else (table[0], table[1])
        low, high = (np.broadcast_to(np.asarray(side, dtype=np.float64).ravel(), (size,)) for side in pair)
    except (TypeError, ValueError, IndexError):
        raise ValueError(
            f"bounds: expected (low, high) or {size} pairs of them for {name}, or a list of lows and one of highs, got "
            f"{bounds!r}; None means no bound"
        ) from None
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


def _flags_of(name: str, flags: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:  # noqa: ANN401
    try:
        return np.broadcast_to(np.asarray(flags, dtype=np.bool_), shape).ravel()
    except ValueError:
        raise ValueError(
            f"integrality: expected true or false, or {list(shape)} of them for {name}, got {flags!r}"
        ) from None
