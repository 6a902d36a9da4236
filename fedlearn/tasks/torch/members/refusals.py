"""Refusals of functions that change parameters, draw random numbers or move statistics while members are compared."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
from torch.nn.parameter import is_lazy

from fedlearn.tasks.task import listed


class Refused(ValueError):  # noqa: N818 (not a fault of the program)
    """The error of a model or loss by which members cannot be compared; the message names a remedy."""


_IN_PLACE_OPERATORS = (
    "__set__", "__setitem__",
    "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__",
    "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__", "__imatmul__",
)  # fmt: skip


def refuse_changes(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    is_parameter: Callable[[Any], bool],
    name_of: Callable[[Any], str] = lambda _: "a parameter",
) -> None:
    """Checks a torch function before it is called.

    Raises:
        Refused: the function would write into a parameter.
    """
    # The names of writing functions are like add_, __iadd__, __setitem__, and __set__ of an attribute such as `data`.
    name = getattr(function, "__name__", "")
    writes = name in _IN_PLACE_OPERATORS or (name.endswith("_") and not name.endswith("__"))
    written = args[0] if writes and args and is_parameter(args[0]) else kwargs.get("out")
    if is_parameter(written):
        raise Refused(
            f"the model or its loss changes {name_of(written)} in place ({name}), but every member has its own; "
            "compute a new tensor from it instead"
        )


def refuse_randomness(name: str, remedy: str) -> None:
    raise Refused(f"{name} draws random numbers during trials, so that members differ by luck; {remedy}")


def refuse_module(model: nn.Module, *, may_train: bool = False) -> None:
    """Checks the modules of a model before anything is computed.

    Raises:
        Refused: dropout or a batch norm is in training mode and `may_train` is not said, or another running average is.
    """
    for name, module in model.named_modules():
        if not module.training:
            continue
        where = f"{type(module).__name__} {name!r}" if name else type(module).__name__
        if not may_train and _has_dropout(module):
            refuse_randomness(f"{where} in training mode", "call model.eval(), or set its probability to 0")
        allowed = nn.modules.batchnorm._BatchNorm if may_train else ()
        is_norm = isinstance(module, nn.modules.batchnorm._NormBase) and not isinstance(module, allowed)
        if is_norm and module.running_mean is not None:
            refuse_statistics(f"{where} in training mode")


def refuse_lazy(model: nn.Module) -> None:
    """Checks that all parameters and buffers have shapes.

    Raises:
        Refused: one follows from the first input of a lazy module, which had none.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise Refused(
                f"model: expected parameters whose shape is known, got {name!r} of a lazy module that no input has "
                "met; call the model once, such as model(torch.zeros(1, 64)), where it is made"
            )


def _has_dropout(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0 and module.num_layers > 1
    return isinstance(module, nn.MultiheadAttention) and module.dropout > 0


def refuse_statistics(name: str) -> None:
    raise Refused(
        f"{name} moves its running averages during trials, so that a member's loss depends on those before it; "
        "call model.eval() (its averages are then frozen), use GroupNorm or LayerNorm, or let it have none "
        "(track_running_stats=False)"
    )


def refuse_no_result(result: object) -> None:
    """Checks the result of a function.

    Raises:
        Refused: the result is None.
    """
    if result is None:
        raise Refused("the model's loss: expected a number, got None; let the function return the loss")


def refuse_several(found: object) -> None:
    """Checks that a loss is one thing.

    Raises:
        Refused: there are several, as in the outputs of transformers' models.
    """
    if isinstance(found, dict):
        names = ", ".join(repr(name) for name in found)
        own = "its 'loss'" if "loss" in found else "the loss"
        raise Refused(f"the loss: expected one number, got {type(found).__name__} of {names}; return {own} alone")
    if isinstance(found, tuple | list):
        received = f"{type(found).__name__} of {len(found)}"
        raise Refused(f"the loss: expected one number, got {received}; return the loss alone")


def refuse_memory(first: object, second: object) -> None:
    raise Refused(
        f"the model and its loss gave {_in_short(first)}, and then {_in_short(second)} for the same weights and rows: "
        "expected the same each time; they depend on earlier calls, such as a counter or a state that is kept, on a "
        "clock, or on random numbers of a generator of their own: use torch.rand, random.random or numpy.random.rand"
    )


def refuse_one_loss(loss: float) -> None:
    raise Refused(
        f"all members have the loss {loss:g}, however large the noise is: expected one that follows from the "
        "parameters; look whether the model keeps a result of an earlier call, or the loss leaves its result out"
    )


def refuse_unread(names: Sequence[str], met_before: Sequence[str], keepers: Mapping[str, str]) -> None:
    """Refuses parameters on which no result depends; those in `met_before` were read in the very first call.

    `keepers` are attributes that keep tensors, by the name of their module.
    """
    some = listed(names)
    owner, _, last = names[0].rpartition(".")
    is_telling = last not in ("weight", "bias") and all(name.endswith(last) for name in names)
    out = f"leave it out with train=, such as train=lambda name: {(last if is_telling else names[0])!r} not in name"
    if met_before or owner in keepers:
        where = f" in {keepers[owner]!r} of {owner or 'the model'}" if owner in keepers else ""
        raise Refused(
            f"the model keeps what it made of {some} in an earlier call{where}, so that noise there has no effect; "
            f"let it be made anew in every call, or {out}"
        )
    above = [path for path in keepers if not path or owner.startswith(f"{path}.")]
    made = f"{keepers[above[-1]]!r} of {above[-1] or 'the model'}" if above else ""
    perhaps = f"; or if {made} was made of it in an earlier call, let it be made anew in every call" if above else ""
    raise Refused(f"the model and its loss never read {some}, so that noise there has no effect; {out}{perhaps}")


def _in_short(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.item():.6g}" if value.numel() == 1 else f"numbers such as {value.flatten()[0].item():.6g}"
    return str(value)[:_SHORT]


_SHORT = 40
"""The most characters of a value in a message."""


def _argument(position: int, name: str, default: Any) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Any]:  # noqa: ANN401
    def find(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 (an argument of any function)
        return args[position] if len(args) > position else kwargs.get(name, default)

    return find


def _batch_norm(_mode: object, _function: object, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    if _argument(5, "training", False)(args, kwargs) and _argument(1, "running_mean", None)(args, kwargs) is not None:
        refuse_statistics("batch_norm with training=True")
    return NotImplemented


def _instance_norm(_mode: object, _function: object, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    uses_input = _argument(5, "use_input_stats", True)(args, kwargs)
    if uses_input and _argument(1, "running_mean", None)(args, kwargs) is not None:
        refuse_statistics("instance_norm with use_input_stats=True")
    return NotImplemented


RULES: dict[Callable[..., Any], Callable[..., Any]] = {F.batch_norm: _batch_norm, F.instance_norm: _instance_norm}
"""Rules that refuse functions called without a module; calls that they allow are left to other rules."""
