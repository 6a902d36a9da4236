"""Functions that run the operators of the table, each with the table's parameters in their order.

If PyTorch has a public function for an operator it is taken, because the rules by which many members share one product
(`fedlearn.tasks.torch`) are for those, and because calls take half the time. Names of a graph are looked up in
`FUNCTIONS` and nowhere else.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.graphs.operators import OPERATORS
from fedlearn.tasks.torch.dropout import dropout

Function = Callable[..., Any]

_REDUCTIONS = ("none", "mean", "sum")
"""Names of reductions, by ATen's number."""


def _sum(self: Tensor, other: Tensor, alpha: float) -> Tensor:
    return self + other if alpha == 1 else torch.add(self, other, alpha=alpha)


def _difference(self: Tensor, other: Tensor, alpha: float) -> Tensor:
    return self - other if alpha == 1 else torch.sub(self, other, alpha=alpha)


def _copy(self: Tensor, src: Tensor) -> Tensor:
    # PyTorch has no derivative for ATen's.
    return src.to(self).expand(self.shape)


def _permute(self: Tensor, dims: Sequence[int]) -> Tensor:
    is_transpose = self.dim() == 2 and len(dims) == 2 and dims[0] % 2 == 1 and dims[1] % 2 == 0
    return torch.t(self) if is_transpose else torch.permute(self, tuple(dims))


def _batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    eps: float,
) -> Tensor:
    """The batch norm by running averages, or by the input's own rows where there are none."""
    is_by_rows = running_mean is None and running_var is None
    return F.batch_norm(input, running_mean, running_var, weight, bias, training=is_by_rows, eps=eps)


def _instance_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    return torch.instance_norm(input, weight, bias, None, None, True, 0.0, eps, False)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    # Indexing takes half the time, but None and a tensor without dimensions mean something else there.
    if all(index is not None and index.dim() for index in indices):
        return self[tuple(indices)]
    found: Tensor = torch.ops.aten.index.Tensor(self, indices)
    return found


def _layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    return F.layer_norm(input, list(normalized_shape), weight, bias, eps)


def _cross_entropy(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor:
    return F.cross_entropy(
        self,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=_REDUCTIONS[reduction],
        label_smoothing=label_smoothing,
    )


def _recurrent(function: Function) -> Function:
    def run(
        input: Tensor,
        hx: Any,  # noqa: ANN401 (a tensor, or two)
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:  # noqa: ANN401
        return function(input, hx, params, has_biases, num_layers, 0.0, False, bidirectional, batch_first)

    return run


def _drawn(function: Function) -> Function:
    """A function that draws from a generator of the processor, PyTorch's own unless another is given, on any device, so
    that all machines draw the same numbers."""

    def run(*arguments: Any, device: torch.device, generator: torch.Generator | None = None) -> Tensor:  # noqa: ANN401
        *sizes, dtype = arguments
        if device.type == "meta":
            drawn: Tensor = function(*sizes, dtype=dtype, device=device)
            return drawn
        return function(*sizes, dtype=dtype, generator=generator).to(device)  # type: ignore[no-any-return]

    return run


_SAME = (
    "bmm.default", "cat.default", "cos.default", "erf.default", "exp.default", "gather.default", "index_select.default",
    "log.default", "log_softmax.int", "logical_not.default", "maximum.default", "minimum.default", "pow.Tensor_Scalar",
    "relu.default", "rsqrt.default", "scatter_add.default", "sigmoid.default", "sin.default", "softmax.int",
    "split_with_sizes.default", "sqrt.default", "square.default", "stack.default", "tanh.default", "where.self",
)  # fmt: skip
"""Operators for which `torch` has a function with the same name and parameters."""

_PUBLIC: Mapping[str, Function] = {
    **{name: getattr(torch, name.split(".")[0]) for name in _SAME},
    "add.Tensor": _sum,
    "addmm.default": lambda self, mat1, mat2, beta, alpha: torch.addmm(self, mat1, mat2, beta=beta, alpha=alpha),
    "batch_norm.default": _batch_norm,
    "contiguous.default": Tensor.contiguous,
    "conv1d.default": F.conv1d,
    "conv1d.padding": F.conv1d,
    "conv2d.default": F.conv2d,
    "conv2d.padding": F.conv2d,
    "conv3d.default": F.conv3d,
    "conv_transpose1d.default": F.conv_transpose1d,
    "conv_transpose2d.input": F.conv_transpose2d,
    "conv_transpose3d.input": F.conv_transpose3d,
    "copy.default": _copy,
    "cross_entropy_loss.default": _cross_entropy,
    "detach.default": Tensor.detach,
    "div.Tensor": operator.truediv,
    "dropout.default": dropout,
    "embedding.default": lambda weight, indices: F.embedding(indices, weight),
    "expand.default": Tensor.expand,
    "gelu.default": lambda self, approximate: F.gelu(self, approximate=approximate),
    "gru.input": _recurrent(torch.gru),
    "gru_cell.default": torch.gru_cell,
    "index.Tensor": _index,
    "index_add.default": lambda self, dim, index, source, alpha: torch.index_add(self, dim, index, source, alpha=alpha),
    "instance_norm.default": _instance_norm,
    "layer_norm.default": _layer_norm,
    "linear.default": F.linear,
    "lstm.input": _recurrent(torch.lstm),
    "lstm_cell.default": torch.lstm_cell,
    "matmul.default": torch.matmul,
    "mean.dim": lambda self, dim, keepdim, dtype: torch.mean(self, dim, keepdim, dtype=dtype),
    "mm.default": torch.mm,
    "mul.Scalar": operator.mul,
    "mul.Tensor": operator.mul,
    "mv.default": torch.mv,
    "neg.default": Tensor.neg,
    "permute.default": _permute,
    "rand.default": _drawn(torch.rand),
    "randint.low": _drawn(torch.randint),
    "randn.default": _drawn(torch.randn),
    "reshape.default": Tensor.reshape,
    "rnn_relu_cell.default": torch.rnn_relu_cell,
    "rnn_tanh_cell.default": torch.rnn_tanh_cell,
    "rnn_relu.input": _recurrent(torch.rnn_relu),
    "rnn_tanh.input": _recurrent(torch.rnn_tanh),
    "scaled_dot_product_attention.default": _attention,
    "select.int": Tensor.select,
    "silu.default": F.silu,
    "sub.Tensor": _difference,
    "sum.dim_IntList": lambda self, dim, keepdim, dtype: torch.sum(self, dim, keepdim, dtype=dtype),
    "t.default": torch.t,
    "to.dtype": Tensor.to,
    "transpose.int": torch.transpose,
    "type_as.default": Tensor.type_as,
    "unsqueeze.default": Tensor.unsqueeze,
    "zeros_like.default": lambda self, dtype: torch.zeros_like(self, dtype=dtype),
}

SOURCES = frozenset(name for name, listed in OPERATORS.items() if listed.is_source)
"""Operators that read no value; their functions take the `device` of the result."""


def _of_aten(name: str) -> Function:
    """ATen's own function; an argument behind one that the table lacks is passed by name."""
    packet, overload = name.split(".")
    function: Function = getattr(getattr(torch.ops.aten, packet), overload)
    names = [parameter.name for parameter in OPERATORS[name].parameters]
    by_place = [
        given.name == name
        for given, name in zip(function._schema.arguments, names, strict=False)  # type: ignore[attr-defined]
        if not given.kwarg_only
    ]
    n_by_place = (*by_place, False).index(False)
    if n_by_place == len(names):
        return function

    def run(*arguments: Any, **device: torch.device) -> Any:  # noqa: ANN401 (whatever the operator takes)
        named = zip(names[n_by_place:], arguments[n_by_place:], strict=True)
        return function(*arguments[:n_by_place], **dict(named), **device)

    return run


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {name: _PUBLIC[name] if name in _PUBLIC else _of_aten(name) for name in OPERATORS}
)
"""The functions of all operators, by name."""
