"""Costs of calls, estimated for planning from the shapes of what they read and give."""

from collections.abc import Callable, Mapping
from math import prod

from fedlearn.graphs.checks import values_read
from fedlearn.graphs.graph import Argument, Call, GraphError, Shape, Value
from fedlearn.graphs.operators import OPERATORS

Shapes = Mapping[str, Shape]
"""The shape of each value, by name."""


def multiply_adds(call: Call, shapes: Shapes) -> float:
    """Multiply-adds of a call for one member on one group's rows; a call without products counts one per element."""
    count = _COUNTS.get(call.operator)
    if count is None:
        return float(sum(prod(shapes[name]) for name in call.results))
    return float(count(call, shapes))


def makes_products(call: Call) -> bool:
    """Whether a call costs more than one pass over its results, as a linear layer does."""
    return call.operator in _COUNTS


def _shape(call: Call, parameter: str, shapes: Shapes) -> Shape:
    names = [one.name for one in OPERATORS[call.operator].parameters]
    argument = call.arguments[names.index(parameter)]
    if not isinstance(argument, Value):
        raise GraphError(f"{call.operator}: expected a value as {parameter}, got {argument}")
    return shapes[argument.name]


def _depth_of(parameter: str) -> Callable[[Call, Shapes], int]:
    """A count for operators whose results are sums along the last dimension of an argument."""
    return lambda call, shapes: prod(shapes[call.results[0]]) * _shape(call, parameter, shapes)[-1]


def _convolution(call: Call, shapes: Shapes) -> int:
    return prod(shapes[call.results[0]]) * prod(_shape(call, "weight", shapes)[1:])


def _transposed_convolution(call: Call, shapes: Shapes) -> int:
    return prod(_shape(call, "input", shapes)) * prod(_shape(call, "weight", shapes)[1:])


def _attention(call: Call, shapes: Shapes) -> int:
    n_keys = _shape(call, "key", shapes)[-2]
    return n_keys * (prod(_shape(call, "query", shapes)) + prod(shapes[call.results[0]]))


def _recurrent(call: Call, shapes: Shapes) -> int:
    steps = prod(_shape(call, "input", shapes)[:-1])
    return steps * sum(prod(shapes[name]) for name in values_read(call) if _is_weight(name, call, shapes))


def _cell(call: Call, shapes: Shapes) -> int:
    rows = prod(_shape(call, "input", shapes)[:-1])
    return rows * sum(prod(_shape(call, weight, shapes)) for weight in ("w_ih", "w_hh"))


def _matrix_exp(call: Call, shapes: Shapes) -> int:
    """Multiply-adds of a matrix exponential by a Taylor polynomial of degree 18 and a few squarings."""
    return 10 * prod(shapes[call.results[0]]) * shapes[call.results[0]][-1]


def _fourier(call: Call, shapes: Shapes) -> int:
    """Multiply-adds of a Fourier transform: five times the logarithm of the length for each number."""
    shape = _shape(call, "self", shapes)
    return 5 * prod(shape) * sum(extent.bit_length() for extent in shape)


def _is_weight(name: str, call: Call, shapes: Shapes) -> bool:
    params: Argument = call.arguments[2]
    return len(shapes[name]) == 2 and isinstance(params, tuple) and Value(name) in params


def _einsum(call: Call, shapes: Shapes) -> int:
    """Multiply-adds of an einsum, whose results are sums over the indices that they lack."""
    before, arrow, after = str(call.arguments[0]).replace(" ", "").partition("->")
    extents: dict[str, int] = {}
    for term, name in zip(before.split(","), values_read(call), strict=False):
        extents.update(zip(reversed(term.replace(".", "")), reversed(shapes[name]), strict=False))
    kept = after if arrow else [letter for letter in extents if before.count(letter) == 1]
    return prod(shapes[call.results[0]]) * prod(extent for letter, extent in extents.items() if letter not in kept)


_COUNTS: Mapping[str, Callable[[Call, Shapes], int]] = {
    "addmm.default": _depth_of("mat1"),
    "baddbmm.default": _depth_of("batch1"),
    "bilinear.default": _convolution,  # sums over all but the first dimension of its weight, too
    "bmm.default": _depth_of("self"),
    "dot.default": _depth_of("self"),
    "einsum.default": _einsum,
    "linear.default": _depth_of("input"),
    "matmul.default": _depth_of("self"),
    "mm.default": _depth_of("self"),
    "mv.default": _depth_of("self"),
    "scaled_dot_product_attention.default": _attention,
    **dict.fromkeys(
        ("conv1d.default", "conv1d.padding", "conv2d.default", "conv2d.padding", "conv3d.default", "conv3d.padding"),
        _convolution,
    ),
    **dict.fromkeys(
        ("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input"), _transposed_convolution
    ),
    "matrix_exp.default": _matrix_exp,
    "vdot.default": _depth_of("self"),
    **dict.fromkeys(
        (f"fft_{name}.default" for name in ("fft", "fft2", "ifft", "ifft2", "irfft", "irfft2", "rfft", "rfft2")),
        _fourier,
    ),
    **dict.fromkeys(("gru_cell.default", "lstm_cell.default", "rnn_relu_cell.default", "rnn_tanh_cell.default"), _cell),
    **dict.fromkeys(("gru.input", "lstm.input", "rnn_relu.input", "rnn_tanh.input"), _recurrent),
}
