"""Runs an unmodified function for many members at once, by `torch.vmap` over members, with the mode and its rules."""

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import torch
from torch import Tensor

from fedlearn.tasks.torch import rules
from fedlearn.tasks.torch.members import refusals
from fedlearn.tasks.torch.members.batched_view import BatchedView
from fedlearn.tasks.torch.members.mode import Perturbed, Rules
from fedlearn.tasks.torch.members.noise import Noise, number_of_members
from fedlearn.tasks.torch.trees import Tree


def rules_in(room: ModuleType) -> Rules:
    """The tables `RULES` of all modules of a package, as one."""
    modules = [import_module(module.name) for module in iter_modules(room.__path__, f"{room.__name__}.")]
    tables: list[Rules] = [getattr(module, "RULES", {}) for module in modules]
    return {function: rule for table in tables for function, rule in table.items()}


RULES: Rules = {**refusals.RULES, **rules_in(rules)}


def batched(
    function: Callable[..., Tree],
    parameters: Sequence[Tensor],
    noise: Sequence[Noise],
    shared: Sequence[Tree] = (),
    own: Sequence[Tree] = (),
    *,
    seen: Callable[[Perturbed], object] | None = None,
) -> Tree:
    """Calls `function(*shared, *own)` for all members; results, and tensors in `own`, are [members, ...].

    `seen` is called with the mode after the function has run in it.

    Raises:
        Refused: the function does something by which members cannot be compared.
        Exception: vmap refuses the function, for instance because it branches on values.
    """
    n_members = number_of_members(noise)

    def one(member: Tensor, own: Sequence[Tree]) -> Tree:
        with Perturbed(parameters, noise, RULES, BatchedView(member, n_members)) as mode:
            results = function(*shared, *own)
        if seen is not None:
            seen(mode)
        return results

    members = torch.arange(n_members, device=parameters[0].device)
    with warnings.catch_warnings():
        # The result is right all the same, and the trial measures how long it takes.
        warnings.filterwarnings("ignore", message="There is a performance drop")
        return torch.vmap(one, randomness="same")(members, tuple(own))
