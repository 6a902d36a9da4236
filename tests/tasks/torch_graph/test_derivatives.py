"""The gradient of every operator of the table against finite differences, in double precision."""

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from fedlearn.graphs.operators import OPERATORS  # noqa: E402
from fedlearn.tasks.torch_graph.functions import FUNCTIONS  # noqa: E402

FLAT = "its result is whole numbers or truth, so it has no slope"
CONSTANT = "its result depends on no value of its arguments"
STEPS = "it is flat between its steps, so its gradient is zero"

NOT_DIFFERENTIABLE: dict[str, str] = {
    **dict.fromkeys(
        (
            "bitwise_not.default", "isnan.default", "logical_not.default", "bitwise_and.Tensor", "bitwise_or.Tensor",
            "eq.Scalar", "eq.Tensor", "ge.Scalar", "ge.Tensor", "gt.Scalar", "gt.Tensor", "le.Scalar", "le.Tensor",
            "lt.Scalar", "lt.Tensor", "ne.Scalar", "ne.Tensor", "logical_and.default", "logical_or.default",
            "all.default", "all.dim", "any.default", "any.dim", "argmax.default", "argmin.default", "argsort.default",
            "one_hot.default",
        ),
        FLAT,
    ),
    "detach.default": "what it gives is a constant to all that follows",
    **dict.fromkeys(
        (
            "arange.default", "arange.start", "arange.start_step", "eye.default", "full.default", "linspace.default",
            "ones.default", "rand.default", "randint.low", "randn.default", "scalar_tensor.default", "zeros.default",
            "full_like.default", "new_full.default", "new_ones.default", "new_zeros.default", "ones_like.default",
            "zeros_like.default", "where.Scalar",
        ),
        CONSTANT,
    ),
    **dict.fromkeys(("floor_divide.default", "floor_divide.Scalar"), STEPS),
}  # fmt: skip
"""Operators without a gradient, and why."""


def rand(*shape: int, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Numbers far enough apart for the kinks of maxima, and on no step of the table's arguments."""
    n = torch.Size(shape).numel()
    order = torch.randperm(n, generator=torch.Generator().manual_seed(n + len(shape) + int(10 * high)))
    numbers = torch.linspace(low, high, n + 2, dtype=torch.float64)[1:-1][order].reshape(shape)
    moved: Tensor = numbers + 0.01234 / (n + high)
    return moved.requires_grad_()


def positive(*shape: int) -> Tensor:
    return rand(*shape, low=0.3, high=2.0)


def words(*rows: list[int]) -> Tensor:
    numbers: Tensor = torch.tensor(rows)
    return numbers


def masked(*rows: list[int]) -> Tensor:
    return words(*rows) > 0


def complex_of(*shape: int) -> Tensor:
    numbers: Tensor = torch.complex(rand(*shape).detach(), rand(*shape, high=0.9).detach())
    return numbers.requires_grad_()


def recurrent(gates: int, n_states: int) -> tuple[Any, ...]:
    """Two layers of two units, in both directions, over three steps of two sequences."""
    states = [rand(4, 2, 2), rand(4, 2, 2, high=0.8)][:n_states]
    weights: list[Tensor] = []
    for n_inputs in (2, 4):
        for number in range(2):
            high = 0.9 - 0.1 * number
            weights += [rand(2 * gates, n_inputs, high=high), rand(2 * gates, 2, high=high)]
            weights += [rand(2 * gates, high=high), rand(2 * gates, high=high + 0.3)]
    return rand(2, 3, 2), states if n_states > 1 else states[0], weights, True, 2, True, True


def cell(gates: int) -> tuple[Any, ...]:
    return rand(3 * gates, 2), rand(3 * gates, 3), rand(3 * gates), rand(3 * gates, high=0.8)


X, Y = rand(2, 3, 4), rand(2, 3, 4, high=0.9)
MASK = masked([1, 0, 1, 1])
IMAGE, SEQUENCE, CUBE = rand(2, 4, 5, 5), rand(2, 4, 5), rand(1, 2, 3, 4, 3)
PROBABILITIES = rand(3, 4, low=0.1, high=0.9)

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **{
        f"{name}.default": (X,)
        for name in (
            "abs", "cos", "erf", "exp", "expm1", "neg", "reciprocal", "sigmoid", "sin", "square", "tanh",
            "hardsigmoid", "hardswish", "log_sigmoid", "mish", "relu", "relu6", "selu", "silu",
            "ceil", "floor", "round", "sign",
        )
    },
    **{f"{name}.default": (positive(2, 3, 4),) for name in ("log", "log1p", "log2", "rsqrt", "sqrt")},
    "celu.default": (X, 0.7),
    "elu.default": (X, 0.7, 1.1, 0.9),
    "gelu.default": (X, "tanh"),
    "glu.default": (X, -1),
    "hardtanh.default": (X, -0.55, 0.45),
    "leaky_relu.default": (X, 0.1),
    "log_softmax.int": (X, 1, None),
    "prelu.default": (X, rand(3)),
    "softmax.int": (X, 1, None),
    "softplus.default": (X, 2.0, 1.0),

    "add.Scalar": (X, 2, 3),
    "add.Tensor": (X, rand(4), 3),
    "addcdiv.default": (X, rand(4), positive(3, 1), 0.5),
    "addcmul.default": (X, rand(4), rand(3, 1), 0.5),
    "div.Scalar": (X, 3),
    "div.Tensor": (X, positive(4)),
    "div.Scalar_mode": (X, 0.3, "floor"),
    "div.Tensor_mode": (X, positive(4), "floor"),
    "lerp.Scalar": (X, rand(4), 0.3),
    "lerp.Tensor": (X, rand(4), rand(3, 1)),
    "max.other": (X, rand(4)),
    "maximum.default": (X, rand(4)),
    "min.other": (X, rand(4)),
    "minimum.default": (X, rand(4)),
    "mul.Scalar": (X, 3),
    "mul.Tensor": (X, rand(4)),
    "pow.Scalar": (2.5, X),
    "pow.Tensor_Scalar": (positive(2, 3, 4), 1.5),
    "pow.Tensor_Tensor": (positive(2, 3, 4), rand(4)),
    "remainder.Scalar": (X, 0.3),
    "remainder.Tensor": (X, positive(4)),
    "rsub.Scalar": (X, 2, 3),
    "rsub.Tensor": (X, rand(4), 3),
    "sub.Scalar": (X, 2, 3),
    "sub.Tensor": (X, rand(4), 3),

    "clamp.default": (X, -0.55, None),
    "clamp.Tensor": (X, rand(4, high=0.0), rand(3, 1, low=0.5)),
    "clamp_max.default": (X, 0.45),
    "clamp_min.default": (X, -0.55),
    "masked_fill.Scalar": (X, MASK, 3),
    "masked_fill.Tensor": (X, MASK, rand()),
    "nan_to_num.default": (X, 0.5, None, None),
    "where.ScalarOther": (MASK, X, 3),
    "where.ScalarSelf": (MASK, 3, X),
    "where.self": (MASK, X, rand(4)),

    "amax.default": (X, [0, -1], True),
    "amin.default": (X, [1], False),
    "cumprod.default": (X, 1, None),
    "cumsum.default": (X, 1, None),
    "linalg_vector_norm.default": (X, 3, [0, -1], True, None),
    "logsumexp.default": (X, [0, 2], False),
    "max.default": (X,),
    "max.dim": (X, 1, True),
    "mean.default": (X, None),
    "mean.dim": (X, [0, -1], True, None),
    "min.default": (X,),
    "min.dim": (X, 1, False),
    "prod.default": (rand(5), None),
    "prod.dim_int": (X, 1, True, None),
    "sort.default": (X, 2, True),
    "std.correction": (X, [0, 1], 1, True),
    "std.dim": (X, [2], False, False),
    "sum.default": (X, None),
    "sum.dim_IntList": (X, [0, 1], True, None),
    "topk.default": (X, 2, -1, True, True),
    "var.correction": (X, [0, 1], 0, True),
    "var.dim": (X, None, True, False),

    "addmm.default": (rand(5), rand(2, 4), rand(4, 5), 0.5, 2),
    "baddbmm.default": (rand(3, 1), rand(2, 3, 4), rand(2, 4, 2), 0.5, 2),
    "bilinear.default": (rand(2, 3), rand(2, 4), rand(2, 3, 4), rand(2)),
    "bmm.default": (X, rand(2, 4, 2)),
    "dot.default": (rand(4), rand(4, high=0.9)),
    "einsum.default": ("bij,jk->bk", [X, rand(4, 2)]),
    "linear.default": (X, rand(5, 4), rand(5)),
    "matmul.default": (X, rand(4, 2)),
    "mm.default": (rand(2, 3), rand(3, 4)),
    "matrix_exp.default": (rand(3, 3),),
    "mv.default": (rand(2, 3), rand(3)),
    "outer.default": (rand(3), rand(4)),
    "vdot.default": (rand(4), rand(4, high=0.9)),

    "fft_fft.default": (X, 5, 1, "ortho"),
    "fft_fft2.default": (X, None, [-2, -1], "forward"),
    "fft_ifft.default": (complex_of(3, 4), None, 0, None),
    "fft_ifft2.default": (complex_of(3, 4), [3, 3], [-2, -1], None),
    "fft_irfft.default": (complex_of(3, 4), 6, -1, None),
    "fft_irfft2.default": (complex_of(3, 4), None, [0, 1], "ortho"),
    "fft_rfft.default": (X, None, 1, "backward"),
    "fft_rfft2.default": (X, [2, 4], [-2, -1], None),
    "view_as_complex.default": (rand(3, 4, 2),),
    "view_as_real.default": (complex_of(3, 4),),

    "conv1d.default": (SEQUENCE, rand(6, 2, 3), rand(6), [2], [1], [2], 2),
    "conv1d.padding": (SEQUENCE, rand(6, 2, 3), rand(6), [1], "same", [2], 2),
    "conv2d.default": (IMAGE, rand(6, 2, 3, 3), rand(6), [2, 1], [1, 0], [1, 2], 2),
    "conv2d.padding": (IMAGE, rand(6, 2, 3, 3), None, [1, 1], "same", [1, 2], 2),
    "conv3d.default": (CUBE, rand(2, 2, 2, 2, 2), rand(2), [1, 1, 2], [0, 1, 0], [1, 1, 1], 1),
    "conv_transpose1d.default": (SEQUENCE, rand(4, 3, 3), rand(6), [2], [1], [1], 2, [2]),
    "conv_transpose2d.input": (rand(2, 4, 3, 3), rand(4, 3, 3, 3), rand(6), [2, 2], [1, 0], [1, 0], 2, [1, 2]),
    "conv_transpose3d.input": (CUBE, rand(2, 1, 2, 2, 2), None, [2] * 3, [0] * 3, [1, 0, 0], 2, [1] * 3),
    "adaptive_avg_pool1d.default": (SEQUENCE, [3]),
    "adaptive_avg_pool2d.default": (IMAGE, [3, 2]),
    "adaptive_avg_pool3d.default": (CUBE, [2, 3, 1]),
    "adaptive_max_pool2d.default": (IMAGE, [3, 2]),
    "avg_pool1d.default": (SEQUENCE, [3], [2], [1], True, False),
    "avg_pool2d.default": (IMAGE, [3, 2], [2, 1], [1, 0], False, True, 4),
    "avg_pool3d.default": (CUBE, [2, 2, 2], [1, 2, 1], [0, 1, 0], True, False, None),
    "max_pool1d.default": (SEQUENCE, [2], [2], [1], [2], False),
    "max_pool2d.default": (IMAGE, [2, 3], [2, 1], [1, 1], [1, 1], True),
    "max_pool3d.default": (CUBE, [2, 2, 2], [1, 2, 1], [0, 1, 0], [1, 1, 1], False),
    "_upsample_bicubic2d_aa.vec": (IMAGE, [4, 3], False, None),
    "_upsample_bilinear2d_aa.vec": (IMAGE, [4, 3], True, None),
    "_upsample_nearest_exact1d.vec": (SEQUENCE, None, [1.5]),
    "_upsample_nearest_exact2d.vec": (IMAGE, [7, 3], None),
    "_upsample_nearest_exact3d.vec": (CUBE, None, [1.5, 1.0, 2.0]),
    "upsample_bicubic2d.vec": (IMAGE, [7, 3], False, None),
    "upsample_bilinear2d.vec": (IMAGE, None, True, [1.5, 0.8]),
    "upsample_linear1d.vec": (SEQUENCE, [7], False, None),
    "upsample_nearest1d.vec": (SEQUENCE, [7], None),
    "upsample_nearest2d.vec": (IMAGE, None, [1.5, 0.8]),
    "upsample_nearest3d.vec": (CUBE, [2, 6, 3], None),
    "upsample_trilinear3d.vec": (CUBE, [2, 6, 3], False, None),

    "dropout.default": (X, 0.3),
    "_weight_norm.default": (rand(3, 4), positive(3, 1), 0),
    "batch_norm.default": (X, rand(3), rand(3, high=0.9), rand(3).detach(), positive(3).detach(), 1e-3),
    "group_norm.default": (IMAGE, 2, rand(4), rand(4, high=0.9), 1e-3),
    "instance_norm.default": (IMAGE, rand(4), rand(4, high=0.9), 1e-3),
    "layer_norm.default": (X, [3, 4], rand(3, 4), rand(3, 4, high=0.9), 1e-3),
    "rms_norm.default": (X, [4], rand(4), 1e-3),

    "embedding.default": (rand(3, 4), words([0, 2], [1, 1])),
    "scaled_dot_product_attention.default": (X, Y, rand(2, 3, 2), rand(3, 3), False, 0.3, False),
    "gru.input": recurrent(3, 1),
    "gru_cell.default": (rand(2, 2), rand(2, 3), *cell(3)),
    "lstm_cell.default": (rand(2, 2), [rand(2, 3), rand(2, 3, high=0.8)], *cell(4)),
    "rnn_relu_cell.default": (rand(2, 2), rand(2, 3), *cell(1)),
    "rnn_tanh_cell.default": (rand(2, 2), rand(2, 3), *cell(1)),
    "lstm.input": recurrent(4, 2),
    "rnn_relu.input": recurrent(1, 1),
    "rnn_tanh.input": recurrent(1, 1),

    "binary_cross_entropy.default": (PROBABILITIES, rand(3, 4, low=0.2, high=0.8), positive(4).detach(), 1),
    "binary_cross_entropy_with_logits.default": (
        X, rand(2, 3, 4, low=0.2, high=0.8), positive(4).detach(), positive(3, 1).detach(), 0
    ),
    "cosine_similarity.default": (X, Y, 1, 1e-3),
    "cross_entropy_loss.default": (rand(4, 3), words([0, 2, 1, 1])[0], positive(3).detach(), 1, 1, 0.1),
    "huber_loss.default": (X, Y, 1, 0.55),
    "kl_div.default": (X, Y, 2, True),
    "l1_loss.default": (X, Y, 2),
    "mse_loss.default": (X, Y, 1),
    "nll_loss_nd.default": (rand(4, 3), words([0, 2, 1, 1])[0], positive(3).detach(), 2, 1),
    "smooth_l1_loss.default": (X, Y, 1, 0.55),
    "triplet_margin_loss.default": (rand(3, 4), rand(3, 4, high=0.7), rand(3, 4, high=0.4), 1.0, 2.0, 1e-6, True, 1),

    "cat.default": ([X, rand(2, 1, 4)], -2),
    "constant_pad_nd.default": (X, [1, 0, -1, 2], 0.5),
    "diagonal.default": (X, 1, -2, -1),
    "diff.default": (X, 2, 1, rand(2, 1, 4), None),
    "expand.default": (rand(3, 1), [2, -1, 4]),
    "flip.default": (X, [0, -1]),
    "gather.default": (rand(2, 3), 1, words([0, 2], [1, 1])),
    "im2col.default": (IMAGE, [2, 3], [1, 2], [1, 0], [2, 1]),
    "index.Tensor": (X, [words([1, 0])[0], words([2], [0])]),
    "index_add.default": (X, 1, words([2, 0, 2])[0], Y, 3),
    "index_select.default": (X, -1, words([3, 3, 0])[0]),
    "pad.default": (SEQUENCE, [2, 1], "reflect", None),
    "permute.default": (X, [2, 0, -2]),
    "pixel_shuffle.default": (IMAGE, 2),
    "repeat.default": (X, [2, 1, 3]),
    "repeat_interleave.self_int": (X, 2, 1),
    "reshape.default": (X, [-1, 4]),
    "roll.default": (X, [1, -2], [0, 2]),
    "scatter.src": (rand(2, 3), 1, words([0, 2], [1, 0]), rand(2, 2)),
    "scatter.value": (rand(2, 3), 1, words([0, 2], [1, 0]), 3),
    "scatter_add.default": (rand(2, 3), 1, words([0, 2], [1, 1]), rand(2, 2)),
    "select.int": (X, -1, 2),
    "select_scatter.default": (X, rand(2, 4), 1, 2),
    "slice.Tensor": (X, 2, 1, None, 2),
    "slice_scatter.default": (X, rand(2, 3, 2), 2, 1, None, 2),
    "split_with_sizes.default": (X, [1, 3], 2),
    "squeeze.default": (rand(3, 1, 2),),
    "squeeze.dim": (rand(3, 1, 2), 1),
    "squeeze.dims": (rand(3, 1, 2, 1), [1, -1]),
    "stack.default": ([X, Y], 1),
    "t.default": (rand(2, 3),),
    "transpose.int": (X, -1, 0),
    "tril.default": (X, 1),
    "triu.default": (X, -1),
    "unfold.default": (X, 2, 3, 1),
    "unsqueeze.default": (X, -2),

    "contiguous.default": (rand(3, 4).t(),),
    "copy.default": (X, rand(3, 4)),
    "fill.Scalar": (X, 3),
    "fill.Tensor": (X, rand()),
    "to.dtype": (X, torch.float64),
    "type_as.default": (X, rand(1)),
}  # fmt: skip


def test_every_operator_has_a_gradient_or_a_reason_for_none() -> None:
    assert ARGUMENTS.keys() | NOT_DIFFERENTIABLE.keys() == OPERATORS.keys()
    assert not ARGUMENTS.keys() & NOT_DIFFERENTIABLE.keys()


BY_ROWS = (X, rand(3), rand(3, high=0.9), None, None, 1e-3)


@pytest.mark.parametrize(("name", "arguments"), [*ARGUMENTS.items(), ("batch_norm.default", BY_ROWS)])
def test_a_gradient_is_that_of_finite_differences(name: str, arguments: tuple[Any, ...]) -> None:
    leaves = [leaf for leaf in leaves_of(arguments) if leaf.requires_grad]
    assert leaves

    def differentiable(*replaced: Tensor) -> tuple[Tensor, ...]:
        torch.manual_seed(0)  # what is dropped is the same each time
        found = FUNCTIONS[name](*with_leaves(arguments, iter(replaced)))
        results = [found] if isinstance(found, Tensor) else found
        return tuple(result for result in results if result.is_floating_point() or result.is_complex())

    assert any(result.requires_grad for result in differentiable(*leaves))
    assert torch.autograd.gradcheck(differentiable, leaves)


def leaves_of(given: Any) -> list[Tensor]:  # noqa: ANN401 (an argument, or a list of them)
    if isinstance(given, list | tuple):
        return [leaf for each in given for leaf in leaves_of(each)]
    return [given] if isinstance(given, Tensor) else []


def with_leaves(given: Any, leaves: Iterator[Tensor]) -> Any:  # noqa: ANN401
    if isinstance(given, list | tuple):
        return [with_leaves(each, leaves) for each in given]
    return next(leaves) if isinstance(given, Tensor) and given.requires_grad else given
