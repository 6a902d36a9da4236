"""Runs one member after another with its weights in place of the model's; right for any function, but often slow."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.torch.members.noise import Factors, Noise, number_of_members, of_members
from fedlearn.tasks.torch.trees import Tree, pick


def sequential(
    function: Callable[..., Tree],
    parameters: Sequence[Tensor],
    weights: Sequence[Tensor],
    noise: Sequence[Noise],
    shared: Sequence[Tree] = (),
    own: Sequence[Tree] = (),
    *,
    seeded: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[Tree]:
    """Calls `function(*shared, *own)` for each member within `seeded`; tensors in `own` are [members, ...].

    `weights` are the unperturbed tensors, in memory of their own, which the parameters hold again afterwards.
    """
    results = []
    with restored(parameters, weights):
        for member in range(number_of_members(noise)):
            put_in_place(parameters, weights, of_members(noise, member, member + 1))
            with seeded():
                results.append(function(*shared, *pick(own, member)))
    return results


@contextmanager
def restored(parameters: Sequence[Tensor], weights: Sequence[Tensor]) -> Iterator[None]:
    """Copies `weights` back into parameters, however the context is left."""
    try:
        yield
    finally:
        load(parameters, weights)


@torch.no_grad()
def load(parameters: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
    """Copies weights into parameters."""
    for parameter, tensor in zip(parameters, weights, strict=True):
        parameter.copy_(tensor)


def load_flat(parameters: Sequence[Tensor], weights: Float32Array) -> list[Tensor]:
    """Copies flat weights into parameters; gives them as tensors in the array's own memory if possible."""
    flat = torch.from_numpy(np.require(weights, np.float32, ["C", "W"])).to(parameters[0].device)
    parts = torch.split(flat, [parameter.numel() for parameter in parameters])
    shaped = [part.view(parameter.shape) for part, parameter in zip(parts, parameters, strict=True)]
    load(parameters, shaped)
    return shaped


@torch.no_grad()
def put_in_place(parameters: Sequence[Tensor], weights: Sequence[Tensor], noise: Sequence[Noise]) -> None:
    """Writes the tensors of the member with this noise into parameters."""
    for parameter, tensor, one in zip(parameters, weights, noise, strict=True):
        if not parameter.is_contiguous():
            parameter.copy_(one.added_to(tensor)[0])
        elif not isinstance(one, Factors):
            torch.add(tensor, one.elements[0], out=parameter.data)
        else:
            rows, columns = one.rows[0], one.columns[0]
            place, matrix = (x.view(len(rows), len(columns)) for x in (parameter.data, tensor))
            if rows.shape[1] == 1:
                torch.addcmul(matrix, rows, columns.T, out=place)
            else:
                torch.addmm(matrix, rows, columns.T, out=place)
