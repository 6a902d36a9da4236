"""Captures a model and its loss by `torch.export`, as a program of ATen's operators that changes nothing in place."""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from fedlearn.graphs.graph import GraphError
from fedlearn.tasks.torch.gradients import called
from fedlearn.tasks.torch.members.mode import getter
from fedlearn.tasks.torch_graph.export.decompositions import decompositions_of
from fedlearn.tasks.torch_graph.export.differentiated import Differentiated, stopped
from fedlearn.tasks.torch_graph.export.refusals import REMEDY, cannot_be_exported, chooses_rows
from fedlearn.tasks.torch_graph.export.stand_ins import standing_in

Loss = Callable[[nn.Module, dict[str, Tensor]], Tensor | float]
"""A function `loss(model, rows)` that gives one number; lower is better."""

_STOPS = (Tensor.detach, Tensor.detach_, torch.detach)
"""Functions that take a gradient away, as reading `data` does, which tracing does not see."""

_CHOICES = (
    Tensor.masked_select, torch.masked_select, Tensor.nonzero, torch.nonzero, Tensor.argwhere, torch.argwhere
)  # fmt: skip
"""Functions whose results have as many numbers as a mask says."""

MODEL = "model"
"""The attribute of `_Whole` that holds the model; names of the model's tensors begin with it and a point."""


def capture(model: nn.Module, loss: Loss, rows: Mapping[str, Tensor]) -> ExportedProgram:
    """The program whose inputs are the columns of `rows` in order, and whose only output is the loss.

    Raises:
        GraphError: the model or its loss branches on values, changes itself, or does what torch cannot follow.
    """
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise GraphError(f"TorchScript does not show its operators; give the module that it was made of, or, {REMEDY}")
    whole = _Whole(model, loss, tuple(rows))
    with torch.no_grad(), _quiet(), standing_in():
        try:
            called(whole, *rows.values())  # makes what a model keeps from its first call, such as positions
            program: ExportedProgram = _exported(whole, tuple(rows.values()))
            program = program.run_decompositions(decompositions_of(program.graph))
        except GraphError:
            raise
        except Exception as error:
            # The user's code may raise anything here when it meets tensors without numbers.
            raise cannot_be_exported(error) from error
    program.graph.eliminate_dead_code()
    for spec in program.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            name = str(spec.target).removeprefix(f"{MODEL}.")
            raise GraphError(
                f"the model changes {name!r} while it runs, so that a member's loss depends on those before it; "
                f"call model.eval() if that is a running average, or, {REMEDY}"
            )
    return program


def _exported(whole: "_Whole", columns: tuple[Tensor, ...]) -> ExportedProgram:
    """The program of a loss; the derivatives that it takes on its way are traced before, if they can't be followed."""
    with torch.enable_grad():
        try:
            program: ExportedProgram = torch.export.export(whole, columns, strict=False)
        except GraphError:
            raise
        except Exception as error:
            try:
                traced = Differentiated(whole.stopping_by(stopped), columns)
                program = torch.export.export(traced, columns, strict=False)
            except Exception:
                raise error from None
        return program


class _Whole(nn.Module):
    """A module that gives the loss of columns, in the form that `torch.export` needs."""

    def __init__(
        self, model: nn.Module, loss: Loss, columns: tuple[str, ...], stop: Callable[[Tensor], Tensor] = Tensor.detach
    ) -> None:
        super().__init__()
        self.model, self._loss, self._columns, self._stop = model, loss, columns, stop

    def stopping_by(self, stop: Callable[[Tensor], Tensor]) -> "_Whole":
        """The same by another function than `detach`."""
        return _Whole(self.model, self._loss, self._columns, stop)

    def forward(self, *columns: Tensor) -> Tensor:
        with _Stops(self._stop):
            result = self._loss(self.model, dict(zip(self._columns, columns, strict=True)))
        if not isinstance(result, Tensor) or result.numel() != 1:
            got = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise GraphError(f"loss: expected a tensor of one number, got {got}; let it end in a mean")
        return result


class _Stops(TorchFunctionMode):
    """A mode in which what is computed without gradients says so, since a program has no such contexts.

    What chooses rows by a mask is refused here, where the line of the user's code is known.
    """

    def __init__(self, stop: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._stop = stop

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        if func in _CHOICES or (func is Tensor.__getitem__ and _has_mask(args[1])):
            raise chooses_rows()
        if func in _STOPS or func == getter("data"):
            return self._stop(args[0])
        found = func(*args, **(kwargs or {}))
        return found if torch.is_grad_enabled() else tree_map_only(Tensor, self._stop, found)


def _has_mask(index: object) -> bool:
    """Whether an index holds a mask."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, Tensor) and part.dtype == torch.bool and part.dim() > 0 for part in parts)


@contextmanager
def _quiet() -> Iterator[None]:
    """A context in which torch does not log messages about itself; what concerns the model is raised."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
