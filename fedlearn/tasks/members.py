"""Members as named numpy arrays, one after another or stacked."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

import numpy as np

from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import Dense, TensorNoise, perturbed


@final
class ArrayMembers:
    """Members around `tensors`, each with its noise: one entry per tensor, in the same order.

    Raises:
        ValueError: the members do not fill `n_groups` groups of one size.
    """

    def __init__(self, tensors: Mapping[str, Float32Array], noise: Sequence[TensorNoise], *, n_groups: int) -> None:
        self._tensors, self._noise = tensors, tuple(noise)
        first = self._noise[0]
        self._n_members = len(first.noise if isinstance(first, Dense) else first.rows)
        self.n_groups = n_groups
        self.group_size, rest = divmod(self._n_members, n_groups)
        if rest:
            raise ValueError(f"n_groups: expected a divisor of {self._n_members} members, got {n_groups}")

    def __len__(self) -> int:
        return self._n_members

    def __call__(self, function: Callable[..., Any], *grouped: Any, own: Sequence[Any] = (), workers: int = 1) -> Any:  # noqa: ANN401
        """Calls `function(arrays, *grouped, *own)` with the tensors of each member; the results are stacked.

        `grouped` and `own` may also hold mappings of arrays. With more than one worker, so many threads call the
        function at the same time.
        """
        calls = (
            (arrays, *(_entry(values, i // self.group_size) for values in grouped), *(_entry(v, i) for v in own))
            for i, arrays in enumerate(self.each())
        )
        if workers == 1:
            return np.stack([function(*arguments) for arguments in calls])
        with ThreadPoolExecutor(workers) as threads:
            return np.stack(list(threads.map(lambda arguments: function(*arguments), calls)))

    def each(self) -> Iterator[dict[str, Float32Array]]:
        pairs = list(zip(self._tensors.items(), self._noise, strict=True))
        for i in range(len(self)):
            yield {name: perturbed(tensor, noise, i) for (name, tensor), noise in pairs}

    def stacked(self) -> dict[str, Float32Array]:
        """All members' tensors at once, [members, *shape] by name."""
        return {
            name: _all_perturbed(tensor, noise)
            for (name, tensor), noise in zip(self._tensors.items(), self._noise, strict=True)
        }


def _all_perturbed(tensor: Float32Array, noise: TensorNoise) -> Float32Array:
    if isinstance(noise, Dense):
        return np.asarray(tensor + noise.noise, dtype=np.float32)
    products = noise.rows @ noise.columns.transpose(0, 2, 1)
    return np.asarray(tensor + products.reshape(-1, *tensor.shape), dtype=np.float32)


def _entry(values: Any, number: int) -> Any:  # noqa: ANN401
    """Entry `number` of an array, or of each array of a mapping; read-only, since members share it."""
    if isinstance(values, Mapping):
        return {name: _entry(column, number) for name, column in values.items()}
    entry = values[number]
    if isinstance(entry, np.ndarray):
        entry = entry.view()
        entry.flags.writeable = False
    return entry
