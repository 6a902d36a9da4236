"""Parts of a model by the names of the tensors, and shards of tensors, that they hold."""

from collections.abc import Iterable

from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.graphs.shards import rows_of


def part_layout(whole: ParameterLayout, names: Iterable[str]) -> ParameterLayout:
    """The layout of the tensors and shards of these names, in the order of the whole layout.

    Raises:
        ValueError: the whole has no such tensor, or a tensor has no such rows.
    """
    held: list[TensorSpec] = []
    for rows in map(rows_of, names):
        cut = {rows.tensor: (rows.first, rows.count)} if rows.end else None
        held += whole.part([rows.tensor], cut).tensors
    # Names are looked up one by one, because several shards of a tensor may be held.
    return ParameterLayout(tuple(sorted(held, key=lambda tensor: (tensor.number or 0, tensor.first_row))))
