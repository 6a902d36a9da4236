"""Structures of tensors in dictionaries, lists and tuples, which functions take and give."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Tree = Any
"""Tensors in dictionaries, lists and tuples, or a single one; other values among them stay as they are."""


def pick(tree: Tree, index: int) -> Tree:
    """The structure with entry `index` of each tensor."""
    return pytree.tree_map(lambda x: x[index] if isinstance(x, Tensor) else x, tree)


def between(tree: Tree, first: int, end: int) -> Tree:
    """The structure with entries `first` to before `end` of each tensor."""
    return pytree.tree_map(lambda x: x[first:end] if isinstance(x, Tensor) else x, tree)


def repeated(tree: Tree, count: int) -> Tree:
    """The structure with each entry of each tensor `count` times in a row."""
    return pytree.tree_map(lambda x: x.repeat_interleave(count, 0) if isinstance(x, Tensor) else x, tree)


def stacked(trees: Sequence[Tree]) -> Tree:
    """One structure of tensors [trees, ...] from many of the same form; numbers become tensors too."""

    def stack(*parts: Tensor | float) -> Tensor:
        for part in parts:
            if not isinstance(part, Tensor | float | int | np.number):
                raise TypeError(f"expected tensors or numbers of what members run, got {type(part).__name__}")
        return torch.stack([torch.as_tensor(part) for part in parts])

    return pytree.tree_map(stack, *trees)


def joined(trees: Sequence[Tree]) -> Tree:
    """One structure from many of the same form, with tensors concatenated along the first dimension."""
    return trees[0] if len(trees) == 1 else pytree.tree_map(lambda *parts: torch.cat(parts), *trees)


def leaves(tree: Tree) -> list[Any]:
    """The values in the structure, in order."""
    return list(pytree.tree_leaves(tree))


def as_tensors(tree: Tree, device: torch.device) -> Tree:
    """The structure with tensors in place of arrays, on the device: float64 becomes float32, integers become int64.

    Bytes (uint8) stay as they are, since images are often kept in them.
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
