"""The tensors of all members behind those that `torch.vmap` shows as one member's.

Rules that work on all members at once cost a fifth of custom operators with vmap rules (10 against 50 microseconds a
call), but how vmap wraps tensors is internal to PyTorch. Only this file knows it. If PyTorch lacks one of the names,
no tensor can be unwrapped, and every rule falls back to its plain form under vmap.
"""

from typing import final

from torch import Tensor
from torch._C import _functorch

_NEEDED = ("_add_batch_dim", "get_unwrapped", "is_functorch_wrapped_tensor", "maybe_current_level", "maybe_get_bdim",
           "maybe_get_level")  # fmt: skip
IS_POSSIBLE = all(hasattr(_functorch, name) for name in _NEEDED)


@final
class BatchedView:
    """A view of the tensors behind those of the innermost vmap at the time of its construction."""

    def __init__(self, member: Tensor, n_members: int) -> None:
        """`member` is the tensor of the member's number, as vmap shows it."""
        self.n_members = n_members
        self._member = member
        self._level = _functorch.maybe_current_level() if IS_POSSIBLE else None

    def can_unwrap(self, *tensors: Tensor | None) -> bool:
        """Whether each tensor is shared by all members, or is batched by this vmap and by no other."""
        if self._level is None or _functorch.maybe_current_level() != self._level:
            return False
        return all(x is None or not _functorch.is_functorch_wrapped_tensor(x) or self.is_batched(x) for x in tensors)

    def is_batched(self, x: Tensor) -> bool:
        """Whether each member has a tensor `x` of its own."""
        return _functorch.maybe_get_level(x) == self._level and _functorch.maybe_get_bdim(x) is not None

    def all(self, x: Tensor) -> Tensor:
        """The tensors `x` of all members, [members, ...]; a view, repeated where members share `x`."""
        if not self.is_batched(x):
            return x.expand(self.n_members, *x.shape)
        whole: Tensor = _functorch.get_unwrapped(x)
        dim = _functorch.maybe_get_bdim(x)
        return whole if dim == 0 else whole.movedim(dim, 0)

    def one(self, whole: Tensor) -> Tensor:
        """One member's part of `whole` [members, ...], as vmap shows it."""
        if self._level is None:
            return whole[self._member]
        part: Tensor = _functorch._add_batch_dim(whole, 0, self._level)
        return part


def is_true_of_all(x: Tensor) -> bool:
    """True if all elements of `x` are true for all members behind vmap; False if they can't be read."""
    if IS_POSSIBLE and _functorch.is_batchedtensor(x):
        x = _functorch.get_unwrapped(x)
    try:
        return bool(x.all())
    except RuntimeError:  # vmap shows one member, and so nothing that could be branched on.
        return False
