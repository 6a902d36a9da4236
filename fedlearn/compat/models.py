"""Modules as they are brought: made in the script, saved by `clusterize`, or scripted in a file."""

import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from fedlearn.compat.normalization import in_training_mode

FOLDER = Path("node_data")
SAVED = "model.pt"
"""The file beside that of the nodes in which `clusterize` keeps the model for node_0."""

Brought = nn.Module | str | Path | None


def save(model: nn.Module, folder: Path) -> str:
    """Saves the model for nodes that are given none; gives what they must do where it can't be saved."""
    try:
        torch.save(model, folder / SAVED)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        return f"the model can't be saved ({error}), so give Node model="
    return ""


def loaded(model: Brought) -> nn.Module:
    """The module; without one that which was saved here, whose file is code of its owner's.

    Raises:
        ValueError: there is none, or the file has no scripted module.
    """
    if isinstance(model, nn.Module):
        return model
    if model is None:
        path = FOLDER / SAVED
        if not path.exists():
            raise ValueError(f"model: expected a module, or {path}, which clusterize writes, got neither")
        found: nn.Module = torch.load(path, weights_only=False)
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that PyTorch will no longer write some day
        try:
            scripted: nn.Module = torch.jit.load(str(model))  # type: ignore[no-untyped-call]
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"{model}: expected a scripted module, got another file; make the module in the script, and pass it"
            ) from error
    return scripted


def by_place(model: nn.Module, example: Sequence[Tensor], named: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """The arguments of a scripted module, which is followed by places, in the order of its `forward`."""
    schema = cast("Any", model).forward.schema
    names = [argument.name for argument in schema.arguments[1:]]
    return (*example, *(named[name] for name in names[len(example) :] if name in named))


def trainable(model: nn.Module, *example: Tensor) -> nn.Module:
    """A copy of the model that can be trained in parts.

    Parameters keep their names. `example` are its arguments for some rows, with which a scripted module is followed.
    """
    if not isinstance(model, torch.jit.ScriptModule):
        return in_training_mode(model)
    return _followed(model, example)


def _followed(model: torch.jit.ScriptModule, example: tuple[Tensor, ...]) -> nn.Module:
    """The calls that the scripted module makes, as a module with its parameters and buffers."""
    from torch._export.converter import TS2EPConverter

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: nn.Module = TS2EPConverter(model.eval(), example).convert().module()
    for name, parameter in model.named_parameters():
        parent, _, own = name.rpartition(".")
        place = found.get_submodule(parent)
        del place._buffers[own]
        place.register_parameter(own, nn.Parameter(parameter.detach().clone(), parameter.requires_grad))
    return found
