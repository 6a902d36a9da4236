"""Losses that differentiate on their way, such as by `torch.autograd.grad`, as modules that `torch.export` can follow.

PyTorch's tracer records the calls of ATen's operators that remain when derivatives are taken, so that a derivative is
one more list of calls.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._decomp import core_aten_decompositions
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

_aten = torch.ops.aten

_TURNED = {
    _aten.add.Tensor: _aten.add.Tensor,
    _aten.mul.Tensor: _aten.mul.Tensor,
    _aten.sub.Tensor: _aten.rsub.Scalar,
}
"""Operators of a number and a tensor, by which they are one of the tensor and the number."""


def stopped(tensor: Tensor) -> Tensor:
    """The tensor without its gradient, by an operator that derivatives do not call."""
    return torch.detach_copy(tensor.detach())


class Differentiated(nn.Module):
    """The calls of a module that differentiates, with the module's own tensors under their names."""

    def __init__(self, whole: nn.Module, columns: Sequence[Tensor]) -> None:
        """Traces `whole(*columns)`, whose tensors are those of its parts."""
        super().__init__()
        for name, part in whole.named_children():
            self.add_module(name, part)

        def run(tensors: dict[str, Tensor], columns: Sequence[Tensor]) -> Any:  # noqa: ANN401 (whatever it gives)
            return functional_call(whole, tensors, tuple(columns))

        table: dict[Any, Callable[..., Any]] = {**core_aten_decompositions()}
        trace: Callable[..., fx.GraphModule] = make_fx(run, table, tracing_mode="fake", _allow_non_fake_inputs=True)
        self._calls = (_without_detours(trace(self._tensors(), list(columns))),)

    def forward(self, *columns: Tensor) -> Any:  # noqa: ANN401 (whatever the traced module gives)
        return self._calls[0](self._tensors(), list(columns))

    def _tensors(self) -> dict[str, Tensor]:
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}


def _without_detours(traced: fx.GraphModule) -> fx.GraphModule:
    """The same without what derivatives detach for themselves, and with what was stopped as detached."""
    for node in traced.graph.nodes:
        if node.target in (_aten.detach.default, _aten.alias.default):
            node.replace_all_uses_with(node.args[0])
        elif node.target is _aten.detach_copy.default:
            node.target = _aten.detach.default
        elif node.target in _TURNED and isinstance(node.args[0], int | float):
            node.target, node.args = _TURNED[node.target], (node.args[1], node.args[0])
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced
