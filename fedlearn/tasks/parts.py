"""Parts of a model, by the names of what they hold: tensors, and shards of tensors."""

from collections.abc import Iterable

from fedlearn.es.layout import ParameterLayout
from fedlearn.graphs.shards import rows_of


def part_layout(whole: ParameterLayout, names: Iterable[str]) -> ParameterLayout:
    """The layout of the tensors and shards of these names, in the order of the whole layout.

    Raises:
        ValueError: the whole has no such tensor, or a tensor has no such rows.
    """
    numbers = {tensor.name: number for number, tensor in enumerate(whole.tensors)}
    wanted = [rows_of(name) for name in names]
    if unknown := sorted({rows.tensor for rows in wanted} - numbers.keys()):
        raise ValueError(f"part: expected tensors of the model, got {', '.join(unknown)}")
    wanted.sort(key=lambda rows: (numbers[rows.tensor], rows.first))
    return ParameterLayout(
        tuple(
            whole.tensors[numbers[rows.tensor]].cut(
                whole.numbers[numbers[rows.tensor]], (rows.first, rows.count) if rows.end else None
            )
            for rows in wanted
        )
    )
