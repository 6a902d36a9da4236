"""Row masks: the rows of a tensor that could change a group's losses, found from the column of data that names them.

A word that a group never reads cannot change the group's losses: noise on its row would only add variance.
"""

from collections.abc import Mapping
from typing import final

import numpy as np

from fedlearn.es.layout import ParameterLayout
from fedlearn.es.replica import UInt8Array
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import Columns, column_of, group_words, n_rows, row_numbers


@final
class RowReader:
    """Finds row masks from the columns that name rows, so that a replica needs no model for them.

    Raises:
        ValueError: a tensor is not in the layout, or has no rows.
    """

    def __init__(self, layout: ParameterLayout, reads: Mapping[str, str], *, batch_size: int, seed: int) -> None:
        tensors = {tensor.name: tensor for tensor in layout.tensors}
        for name in reads:
            if name not in tensors or not tensors[name].is_matrix:
                raise ValueError(f"reads: expected names of matrices that are trained, got {name!r}")
        self._columns = [(tensors[name], column) for name, column in reads.items()]
        self.n_mask_columns = sum(tensor.shape[0] for tensor, _ in self._columns)
        self._batch_size = batch_size
        self._seed = seed

    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:
        """The mask [groups, columns], 1 for each row that the group's data name; None if all rows of all tensors count.

        Raises:
            ValueError: the data name a row that the tensor does not have.
        """
        if not self._columns:
            return None
        spans = [self._span(update, data, first, count) for first, count in update.spans]
        return np.concatenate(spans) if spans else None

    def _span(self, update: Update, data: Columns, first_member: int, n_members: int) -> UInt8Array:
        first_group, n_groups = first_member // update.group_size, n_members // update.group_size
        words = group_words(self._seed, update.step, first_group, n_groups, self._batch_size)
        rows = row_numbers(words, n_rows(data))
        mask = np.zeros((n_groups, self.n_mask_columns), dtype=np.uint8)
        for tensor, column in self._columns:
            named = column_of(data, column)[rows].reshape(n_groups, -1).astype(np.int64)
            if named.min() < 0 or named.max() >= tensor.shape[0]:
                raise ValueError(
                    f"reads: expected numbers of the {tensor.shape[0]} rows of {tensor.name} in column {column!r}, "
                    f"got {named.min()} to {named.max()}"
                )
            np.put_along_axis(mask, tensor.mask_column + named, 1, axis=1)
        return mask
