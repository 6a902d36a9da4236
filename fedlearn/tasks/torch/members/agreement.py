"""Compares the results of sequential and batched members."""

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fedlearn.tasks.torch.trees import Tree

SHARE_OF_SPREAD = 1e-2
"""The largest difference, as a share of the members' spread, that changes no comparison of members."""
SHARE_OF_VALUE = 2e-5
"""The largest difference that the order of additions makes, relative to the largest value."""
SHARE_OF_CHOICES = 0.1
"""The largest share of integers that may differ: they are choices, of which some depend on a last digit."""


def agree(one: Tree, other: Tree) -> bool:
    """Whether two structures of tensors [members, ...] agree for every member."""
    ones, structure = pytree.tree_flatten(one)
    others, other_structure = pytree.tree_flatten(other)
    return structure == other_structure and all(map(_agree, ones, others))


def _agree(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    one, other = one.cpu(), other.cpu()
    if not one.is_floating_point():
        return int((one != other).sum()) <= SHARE_OF_CHOICES * one.numel()
    a, b = one.double(), other.double()
    finite = a.isfinite()
    if not torch.equal(finite, b.isfinite()):
        return False
    a, b = a.nan_to_num(0.0, 0.0, 0.0), b.nan_to_num(0.0, 0.0, 0.0)
    if not a.numel():
        return True
    tolerance = SHARE_OF_VALUE * a.abs().max() + SHARE_OF_SPREAD * a.std(0, correction=0)
    return bool(((a - b).abs() <= tolerance).all())
