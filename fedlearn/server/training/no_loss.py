"""Searches for the cause of losses that are no numbers, for the author of the task."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.es.shaping import MAX_LOSS
from fedlearn.tasks.blocks import Columns


def cause(losses: Float32Array, data: Columns, tensors: Mapping[str, Float32Array]) -> str:
    """A description of what is wrong with the losses of this machine's own members, or with the data of their
    computation."""
    if (np.abs(losses) <= MAX_LOSS).any():
        return "the server's own are: compare what volunteers compute with, such as their device and PyTorch"
    if np.isfinite(losses).any():
        return (
            f"a loss such as {losses[np.isfinite(losses)][0]:g} is beyond {MAX_LOSS:g}, and counts as infinite; "
            "divide it"
        )
    what = "NaN" if np.isnan(losses).any() else "infinite"
    if broken := [name for name, tensor in tensors.items() if not np.isfinite(tensor).all()]:
        return f"losses are {what}, and so are numbers in the weights {', '.join(broken)}; begin with others"
    if rows := [row for name, column in data.items() if (row := _broken_rows(name, column))]:
        return f"losses are {what}, and the data hold NaN or infinity: {', '.join(rows)}; take those rows out"
    return (
        f"losses are {what}, though weights and data are finite; look for a division by 0, a logarithm of 0 or an "
        "overflow in the model and its loss or reward"
    )


def _broken_rows(name: str, column: NDArray[Any]) -> str:
    if column.dtype.kind != "f":
        return ""
    is_broken = ~np.isfinite(column).reshape(len(column), -1).all(axis=1)
    return f"{name} in {np.count_nonzero(is_broken)} of {len(column)} rows" if is_broken.any() else ""
