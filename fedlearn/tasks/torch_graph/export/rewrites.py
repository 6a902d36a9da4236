"""Rewrites of ATen's calls as calls of operators of the table."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import fx

from fedlearn.graphs.graph import GraphError
from fedlearn.graphs.operators import OPERATORS
from fedlearn.tasks.torch_graph.export.refusals import REMEDY, line_of, outside_the_table

Given = dict[str, Any]
"""The arguments of an operator by ATen's names, with defaults filled in."""


class Replacement(NamedTuple):
    """One call that replaces another, or a part of it."""

    operator: str
    arguments: Given


Rewrite = Callable[[fx.Node, Given], list[Replacement]]

_WITHOUT_MEANING = (
    "cudnn_enable", "cudnn_enabled", "device", "implicit", "layout", "memory_format", "momentum", "non_blocking",
    "output_size", "padding_idx", "path", "pin_memory", "scale_grad_by_freq", "sparse", "sparse_grad",
)  # fmt: skip
"""Parameters that the table lacks, because no value depends on them without gradients."""


def replacements_of(node: fx.Node) -> list[Replacement]:
    """The calls that replace the node's call; none if its result is its first argument.

    Raises:
        GraphError: the operator is not in the table, or an argument that the table lacks does not have its default.
    """
    name = str(node.target).removeprefix("aten.")
    if not isinstance(node.target, torch._ops.OpOverload) or (name not in OPERATORS and name not in _REWRITES):
        raise outside_the_table(node)
    given = _bound(node)
    rewrite = _REWRITES.get(name)
    replacements = rewrite(node, given) if rewrite else [Replacement(name, given)]
    return [_with_number(replacement) for replacement in replacements]


def _bound(node: fx.Node) -> Given:
    """The arguments of a call, by name.

    Raises:
        GraphError: an argument that the table lacks does not have its default.
    """
    assert isinstance(node.target, torch._ops.OpOverload)
    name = str(node.target).removeprefix("aten.")
    given: Given = {}
    known = {parameter.name for parameter in OPERATORS[name].parameters} if name in OPERATORS else None
    for place, parameter in enumerate(node.target._schema.arguments):
        default = parameter.default_value if parameter.has_default_value() else None
        value = node.args[place] if place < len(node.args) else node.kwargs.get(parameter.name, default)
        given[parameter.name] = value
        if known is None or parameter.name in known or parameter.name in _WITHOUT_MEANING:
            continue
        if value != default and parameter.name not in _CHECKED.get(name, ()):
            raise GraphError(f"{name}{line_of(node)}: expected {parameter.name} {default}, got {value}; {REMEDY}")
    return given


def _with_number(replacement: Replacement) -> Replacement:
    """The call with the overload for a number, if a number stands in place of a tensor, as in Python's operators."""
    if not isinstance(replacement.arguments.get("other"), int | float):
        return replacement
    packet, overload = replacement.operator.split(".")
    variant = {"Tensor": "Scalar", "Tensor_mode": "Scalar_mode", "default": "Scalar"}.get(overload, overload)
    name = f"{packet}.{variant}"
    return Replacement(name, replacement.arguments) if name in OPERATORS else replacement


def _pieces(node: fx.Node, given: Given) -> list[Replacement]:
    dim = given["dim"]
    sizes = [part.shape[dim] for part in node.meta["val"]]
    return [Replacement("split_with_sizes.default", {"self": given["self"], "split_sizes": sizes, "dim": dim})]


def _selections(node: fx.Node, given: Given) -> list[Replacement]:
    parts = range(len(node.meta["val"]))
    return [Replacement("select.int", {"self": given["self"], "dim": given["dim"], "index": index}) for index in parts]


def _expansions(node: fx.Node, given: Given) -> list[Replacement]:
    shapes = [list(part.shape) for part in node.meta["val"]]
    return [
        Replacement("expand.default", {"self": x, "size": shape})
        for x, shape in zip(given["tensors"], shapes, strict=True)
    ]


def _joined(_: fx.Node, given: Given) -> list[Replacement]:
    """A concatenation without empty tensors, with which caches begin, and which graphs may not contain."""
    filled = [x for x in given["tensors"] if x.meta["val"].numel()]
    return [Replacement("cat.default", {**given, "tensors": filled})]


def _conversion(_: fx.Node, given: Given) -> list[Replacement]:
    return [Replacement("to.dtype", given)] if given["dtype"] is not None else []


def _copy(_: fx.Node, given: Given) -> list[Replacement]:
    # Programs change nothing in place, so that a copy equals its original.
    return [Replacement("contiguous.default", given)] if given["memory_format"] is torch.contiguous_format else []


def _division(name: str) -> Rewrite:
    def rewrite(_: fx.Node, given: Given) -> list[Replacement]:
        return [Replacement(f"{name}_mode" if given["rounding_mode"] else name, given)]

    return rewrite


def _batch_norm_by_rows(_: fx.Node, given: Given) -> list[Replacement]:
    return [Replacement("batch_norm.default", {**given, "running_mean": None, "running_var": None})]


def _dropout(_: fx.Node, given: Given) -> list[Replacement]:
    return [Replacement("dropout.default", given)] if given["train"] is not False else []


def _instance_norm(_: fx.Node, given: Given) -> list[Replacement]:
    if given["use_input_stats"]:
        return [Replacement("instance_norm.default", given)]
    return [Replacement("batch_norm.default", given)]


def _reshape(_: fx.Node, given: Given) -> list[Replacement]:
    return [Replacement("reshape.default", {"self": given["self"], "shape": given["size"]})]


def _drawn_like(name: str) -> Rewrite:
    def rewrite(node: fx.Node, given: Given) -> list[Replacement]:
        drawn = node.meta["val"]
        return [Replacement(name, {"low": 0, **given, "size": list(drawn.shape), "dtype": drawn.dtype})]

    return rewrite


def _softmax(name: str) -> Rewrite:
    return lambda _, given: [Replacement(name, {**given, "dtype": None})]


def _same_as(name: str) -> Rewrite:
    return lambda _, given: [Replacement(name, given)]


_RECURRENT = ("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")

_REWRITES: Mapping[str, Rewrite] = {
    "__and__.Tensor": _same_as("bitwise_and.Tensor"),
    "__or__.Tensor": _same_as("bitwise_or.Tensor"),
    "_log_softmax.default": _softmax("log_softmax.int"),
    "_native_batch_norm_legit.no_stats": _batch_norm_by_rows,
    "_native_batch_norm_legit_no_training.default": _same_as("batch_norm.default"),
    "_softmax.default": _softmax("softmax.int"),
    "_to_copy.default": _conversion,
    "_unsafe_view.default": _reshape,
    "broadcast_tensors.default": _expansions,
    "cat.default": _joined,
    "chunk.default": _pieces,
    "clone.default": _copy,
    "div.Scalar_mode": _division("div.Scalar"),
    "div.Tensor_mode": _division("div.Tensor"),
    "instance_norm.default": _instance_norm,
    "native_dropout.default": _dropout,
    "rand_like.default": _drawn_like("rand.default"),
    "randint.default": _drawn_like("randint.low"),
    "randint.low": _drawn_like("randint.low"),
    "randn_like.default": _drawn_like("randn.default"),
    "split.Tensor": _pieces,
    "unbind.int": _selections,
    "view.default": _reshape,
}
_CHECKED: Mapping[str, tuple[str, ...]] = {
    "instance_norm.default": ("running_mean", "running_var", "use_input_stats"),
    **dict.fromkeys(_RECURRENT, ("dropout", "train")),
}
"""Parameters that the table lacks, and that a rewrite checks by itself."""
