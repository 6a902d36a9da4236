"""Products of all members with one shared matrix, each with a low-rank correction.

    (W + R C^T) x + b = W x + (b + R (C^T x))

The bracket is computed first, and the matrix library adds the shared product to it, so that a member's correction costs
one pass over the inputs and one over the outputs.
"""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.tasks.torch.members.mode import Perturbed
from fedlearn.tasks.torch.members.noise import Factors

HAS_ONEDNN = bool(torch._C._has_mkldnn) and hasattr(torch.ops.mkldnn, "_linear_pointwise")
ONEDNN_PRODUCTS = 2**23
"""Number of multiplications from which oneDNN is faster: MKL takes twice as long on AMD's processors, but starts
sooner."""


def product(mode: Perturbed, x: Tensor, weight: Tensor, bias: Tensor | None, factors: Factors) -> Tensor:
    """The product x (weight + rows columns^T)^T, plus the perturbed bias.

    Shapes are those of `F.linear`: x [..., inputs], weight [outputs, inputs], bias [outputs].
    """
    view = mode.view
    if not view.can_unwrap(x, bias):
        own = None if bias is None else mode.perturbed(bias)
        return plain_product(x, weight, own, view.one(factors.rows), view.one(factors.columns))
    biases = None if bias is None else every(mode, bias)[:, None]
    if view.is_batched(x):
        y = _of_own_rows(view.all(x).reshape(view.n_members, -1, x.shape[-1]), weight, biases, factors)
    else:
        y = _of_shared_rows(x.reshape(-1, x.shape[-1]), weight, biases, factors)
    return view.one(y.view(view.n_members, *x.shape[:-1], weight.shape[0]))


def plain_product(x: Tensor, weight: Tensor, bias: Tensor | None, rows: Tensor, columns: Tensor) -> Tensor:
    """The product for one member, from which vmap makes the product for all."""
    y = F.linear(x, weight) + (x @ columns) @ rows.mT
    return y if bias is None else y + bias


def every(mode: Perturbed, x: Tensor) -> Tensor:
    """The tensors of all members, [members, ...], for a parameter or for any tensor that can be unwrapped."""
    noise = mode.noise_of(x)
    return mode.view.all(x) if noise is None else noise.added_to(x)


def add_product(y: Tensor, a: Tensor, b: Tensor) -> None:
    """Adds the product of two matrices to `y`, by the one of PyTorch's libraries that is faster for its size."""
    if HAS_ONEDNN and y.device.type == "cpu" and y.numel() * a.shape[1] >= ONEDNN_PRODUCTS:
        y.add_(torch.ops.mkldnn._linear_pointwise(a, b.mT, None, "none", [], ""))
    else:
        y.addmm_(a, b)


def _of_own_rows(x: Tensor, weight: Tensor, biases: Tensor | None, factors: Factors) -> Tensor:
    """The products [members, n, outputs] of x [members, n, inputs], plus biases [members, n or 1, outputs]."""
    n_members, n, n_inputs = x.shape
    y = _correction(_dots(x, factors.columns), factors.rows.mT, biases)
    # The rows of all members form one matrix.
    add_product(y.view(n_members * n, -1), x.reshape(n_members * n, n_inputs), weight.mT)
    return y


def _of_shared_rows(x: Tensor, weight: Tensor, biases: Tensor | None, factors: Factors) -> Tensor:
    """The products [members, n, outputs] of x [n, inputs]; the unperturbed product is computed once."""
    n_members, _, rank = factors.columns.shape
    dots = (x @ factors.columns.movedim(0, 1).flatten(1)).view(-1, n_members, rank).movedim(1, 0)
    y = _correction(dots, factors.rows.mT, F.linear(x, weight).expand(n_members, -1, -1))
    return y if biases is None else y.add_(biases)


def _dots(x: Tensor, columns: Tensor) -> Tensor:
    """The products of x and columns, [members, n, rank]."""
    if columns.shape[2] == 1:
        # A batched product with one column takes seven times longer.
        dots: Tensor = torch.linalg.vecdot(x, columns.mT)
        return dots[..., None]
    return torch.bmm(columns.mT, x.mT).mT


def _correction(dots: Tensor, rows: Tensor, added: Tensor | None) -> Tensor:
    """The product of dots [members, n, rank] and rows [members, rank, outputs], plus `added`."""
    if dots.shape[2] == 1:
        return dots * rows if added is None else torch.addcmul(added, dots, rows)
    return torch.bmm(dots, rows) if added is None else torch.baddbmm(added, dots, rows)
