"""Tensors that modules keep in plain attributes, beside their parameters and buffers."""

from collections.abc import Iterator, Mapping

from torch import Tensor, nn

DEPTH = 3
"""The depth to which nested dictionaries, lists and tuples are searched."""


def keepers(model: nn.Module) -> Mapping[str, str]:
    """One attribute that keeps tensors for each module that has any, by the name of the module."""
    return {path: attribute for path, module in model.named_modules() for attribute in _attributes(module)}


def _attributes(module: nn.Module) -> Iterator[str]:
    own = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    for name, value in vars(module).items():
        if name not in ("_parameters", "_buffers", "_modules") and any(
            id(x) not in own for x in _tensors(value, DEPTH)
        ):
            yield name


def _tensors(value: object, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item, depth - 1)
