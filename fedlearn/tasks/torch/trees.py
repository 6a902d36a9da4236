"""Structures of tensors: what functions are given and give, in dictionaries, lists and tuples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Tree = Any
"""Tensors in dictionaries, lists and tuples, or one alone; whatever else lies among them is left as it is."""


def pick(tree: Tree, index: int) -> Tree:
    """The part `index` of each tensor."""
    return pytree.tree_map(lambda x: x[index] if isinstance(x, Tensor) else x, tree)


def between(tree: Tree, first: int, end: int) -> Tree:
    """The parts `first` to `end` of each tensor."""
    return pytree.tree_map(lambda x: x[first:end] if isinstance(x, Tensor) else x, tree)


def repeated(tree: Tree, count: int) -> Tree:
    """Each part of each tensor so many times in a row."""
    return pytree.tree_map(lambda x: x.repeat_interleave(count, 0) if isinstance(x, Tensor) else x, tree)


def stacked(trees: Sequence[Tree]) -> Tree:
    """One structure of tensors [trees, ...] from many of the same kind; numbers become tensors too."""

    def stack(*parts: Tensor | float) -> Tensor:
        for part in parts:
            if not isinstance(part, Tensor | float | int | np.number):
                raise TypeError(f"expected tensors or numbers of what members run, got {type(part).__name__}")
        return torch.stack([torch.as_tensor(part) for part in parts])

    return pytree.tree_map(stack, *trees)


def joined(trees: Sequence[Tree]) -> Tree:
    """One structure from many of the same kind, tensors one after another along the first dimension."""
    return trees[0] if len(trees) == 1 else pytree.tree_map(lambda *parts: torch.cat(parts), *trees)


def leaves(tree: Tree) -> list[Any]:
    """What lies in the structure, in order."""
    return list(pytree.tree_leaves(tree))


def as_tensors(tree: Tree, device: torch.device) -> Tree:
    """The structure with tensors in place of arrays, on the device: float64 as float32, integers as int64.

    Bytes (uint8) stay as they are, as images often are kept in them.
    """

    def convert(leaf: object) -> object:
        if isinstance(leaf, Tensor):
            return leaf.to(device)
        if not isinstance(leaf, np.ndarray):
            return leaf
        if leaf.dtype.kind in "iu" and leaf.dtype != np.uint8:
            leaf = leaf.astype(np.int64, copy=False)
        elif leaf.dtype == np.float64:
            leaf = leaf.astype(np.float32)
        return torch.from_numpy(np.require(leaf, requirements=["C", "W"])).to(device)

    return pytree.tree_map(convert, tree)
