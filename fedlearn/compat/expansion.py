"""The objective of a step whose loss is somebody else's: its first-order expansion about what was predicted.

A loss whose derivative by the prediction p of the layers is g at p0 changes by nearly <p - p0, g> around p0. The
gradient of that by the weights is exactly the loss's, and it needs no more than the rows, p0 and g.
"""

from collections.abc import Mapping, Sequence
from typing import Any, final

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedlearn.compat.layers import Entry, Layers, shapes_of
from fedlearn.compat.sharing import SharedBatch
from fedlearn.tasks.torch.supervised import Rows, supervised

INPUT, PREDICTED, COTANGENT, VALUE = "x", "predicted", "cotangent", "value_"


class Forwarded(msgspec.Struct, eq=False):
    """Rows that were computed forward."""

    x: Tensor
    values: Mapping[str, Tensor]
    prediction: Tensor
    cotangent: Tensor | None = None
    """The derivative of a loss by the prediction, once it is known."""


@final
class Expansion:
    """The task of the layers, whose data are given step by step, and the columns of a step.

    The entries' shapes say the rows of a batch, which `n_machines` share; steps may have others.
    """

    def __init__(self, layers: Layers, entries: Sequence[Entry], *, n_machines: int) -> None:
        self.layers = layers.eval()
        rows = _examples(layers, entries)
        self.batch = SharedBatch.of(len(rows[INPUT]), n_machines)
        self._names = {VALUE + name: name for name in layers.inputs}
        with torch.no_grad():
            found: Tensor = layers(rows[INPUT], {name: rows[column] for column, name in self._names.items()})
        noise = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
        self._data = {**rows, PREDICTED: found, COTANGENT: noise}
        self.task = supervised(
            layers, self._loss, {name: column.numpy() for name, column in self._data.items()},
            batch_size=self.batch.part_size,
        )  # fmt: skip

    def check(self, forwarded: Forwarded) -> None:
        """Checks that rows are such as the workers compute with.

        Raises:
            ValueError: shapes, dtypes or names are others.
        """
        if replaced := sorted(set(forwarded.values) - set(self.layers.inputs)):
            raise ValueError(
                f"backward: expected a prediction from the layers' own values, got one with another {replaced[0]!r}; "
                "call forward with {}"
            )
        for name, column in self._columns_of(forwarded).items():
            wanted = self._data[name]
            if column.shape[1:] != wanted.shape[1:] or column.dtype != wanted.dtype:
                raise ValueError(
                    f"{name.removeprefix(VALUE)}: expected rows {list(wanted.shape[1:])} of {wanted.dtype}, got "
                    f"{list(column.shape[1:])} of {column.dtype}; the list of layers names the shape of each input"
                )

    def columns(self, forwarded: Sequence[Forwarded]) -> tuple[dict[str, NDArray[Any]], int]:
        """The data of a step, and the number of members that share them; rows beyond the last have no weight.

        Raises:
            ValueError: there are no rows.
        """
        if not forwarded:
            raise ValueError("optim_step: expected rows to learn from, got none; call backward(prediction.grad) before")
        several = [self._columns_of(one) for one in forwarded]
        joined = {name: torch.cat([columns[name] for columns in several]).numpy() for name in self._data}
        n_members = -(-len(joined[INPUT]) // self.batch.part_size)
        n_rows = n_members * self.batch.part_size
        # Each member's loss is a mean over its rows, and the step's is the mean over members.
        joined[COTANGENT] = joined[COTANGENT] * np.float32(n_rows)
        return {name: _padded(column, n_rows) for name, column in joined.items()}, n_members

    def _columns_of(self, one: Forwarded) -> dict[str, Tensor]:
        assert one.cotangent is not None, "rows without a cotangent"
        values = {column: one.values[name] for column, name in self._names.items()}
        found = {INPUT: one.x, **values, PREDICTED: one.prediction, COTANGENT: one.cotangent}
        return {
            name: tensor.detach().float() if tensor.is_floating_point() else tensor for name, tensor in found.items()
        }

    def _loss(self, module: nn.Module, rows: Rows) -> Tensor:
        values = {name: rows[column] for column, name in self._names.items()}
        change: Tensor = (module(rows[INPUT], values) - rows[PREDICTED]) * rows[COTANGENT]
        return change.reshape(len(rows[COTANGENT]), -1).sum(1).mean()


def _examples(layers: Layers, entries: Sequence[Entry]) -> dict[str, Tensor]:
    """Rows of the shapes that the entries name."""
    generator = torch.Generator().manual_seed(0)
    shape = shapes_of(entries[0][2])[0]
    is_embedded = isinstance(layers.layers[0], nn.Embedding | nn.EmbeddingBag)
    found = {INPUT: torch.zeros(shape, dtype=torch.int64) if is_embedded else torch.randn(shape, generator=generator)}
    for name, shape in layers.inputs.items():
        found[VALUE + name] = torch.randn(shape, generator=generator)
    return found


def _padded(column: NDArray[Any], n_rows: int) -> NDArray[Any]:
    missing = np.zeros((n_rows - len(column), *column.shape[1:]), dtype=column.dtype)
    return np.concatenate([column, missing])
