"""The mode in which a registered parameter stands for its perturbed value.

A function of one member runs in this mode, within `torch.vmap`. Operations for which there is a rule, such as products
with the shared weights and a low-rank correction, are computed by the rule. All others use the member's own perturbed
tensor, which is slower, but never different.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedlearn.tasks.torch.members.batched_view import BatchedView
from fedlearn.tasks.torch.members.noise import Factors, Noise
from fedlearn.tasks.torch.members.refusals import refuse_changes

Rule = Callable[..., Any]
"""A function `rule(mode, function, *args, **kwargs)` that gives what `function` gives, or NotImplemented."""
Rules = Mapping[Callable[..., Any], Rule]


def getter(attribute: str) -> Callable[..., Any]:
    """The function that a mode sees when an attribute of a tensor is read."""
    read: Callable[..., Any] = getattr(Tensor, attribute).__get__
    return read


_ATTRIBUTES = (
    "shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_leaf", "grad", "grad_fn", "is_cpu", "is_cuda",
    "is_mps", "is_sparse", "is_quantized", "is_nested", "is_meta", "is_mkldnn", "itemsize", "nbytes",
)  # fmt: skip
_SETTABLE = ("grad", "requires_grad")
UNCHANGED: frozenset[Callable[..., Any]] = frozenset({getter(name) for name in _ATTRIBUTES if hasattr(Tensor, name)} | {
    Tensor.size, Tensor.dim, Tensor.ndimension, Tensor.numel, Tensor.nelement, Tensor.element_size, Tensor.stride,
    Tensor.is_contiguous, Tensor.is_floating_point, Tensor.is_complex, Tensor.is_signed, Tensor.get_device,
    Tensor.__len__, Tensor.__hash__, Tensor.requires_grad_, torch.is_floating_point, torch.is_complex, torch.numel,
    *(getattr(Tensor, name).__set__ for name in _SETTABLE),
})  # fmt: skip
"""Functions whose results do not depend on noise."""


@final
class Perturbed(TorchFunctionMode):
    """A mode in which registered parameters are those of the member that vmap shows."""

    def __init__(self, parameters: Sequence[Tensor], noise: Sequence[Noise], rules: Rules, view: BatchedView) -> None:
        super().__init__()
        self.view = view
        self.by_rule: set[Callable[..., Any]] = set()
        """Functions that rules computed."""
        self.by_tensor: set[Callable[..., Any]] = set()
        """Functions that were computed with members' own matrices instead."""
        self.own_numbers = 0
        """Number of elements of the tensors that one member has of its own."""
        self._rules = rules
        self._noise = {id(parameter): one for parameter, one in zip(parameters, noise, strict=True)}
        # Views also stand for parameters; they are kept alive here so that nothing else gets their id.
        self._views: list[Tensor] = []
        self._perturbed: dict[int, Tensor] = {}

    def __torch_function__(
        self,
        function: Any,  # noqa: ANN401 (whatever torch lets modes see)
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        kwargs = kwargs or {}
        if function in UNCHANGED:
            return function(*args, **kwargs)
        rule = self._rules.get(function)
        if rule is not None:
            result = rule(self, function, *args, **kwargs)
            if result is not NotImplemented:
                self.by_rule.add(function)
                return result
        if not self.holds(*args) and not (kwargs and self.holds(*kwargs.values())):
            return function(*args, **kwargs)
        refuse_changes(function, args, kwargs, self.holds)
        given = {name: self._given(value, function) for name, value in kwargs.items()}
        return function(*(self._given(value, function) for value in args), **given)

    def holds(self, *values: Any) -> bool:  # noqa: ANN401 (arguments of any function)
        """Whether a parameter is among these values."""
        noise = self._noise
        return any(id(x) in noise or (isinstance(x, list | tuple) and self.holds(*x)) for x in values)

    def noise_of(self, x: object) -> Noise | None:
        """The noise of a parameter for all members; None for anything else."""
        return self._noise.get(id(x))

    def factors(self, x: object) -> Factors | None:
        """The low-rank noise of a parameter for all members; None for anything else."""
        noise = self.noise_of(x)
        return noise if isinstance(noise, Factors) else None

    def perturbed(self, x: Tensor) -> Tensor:
        """The member's own tensor for a parameter; anything else stays as it is."""
        noise = self.noise_of(x)
        if noise is None:
            return x
        if id(x) not in self._perturbed:
            self._perturbed[id(x)] = self.view.one(noise.added_to(x))
            self.own_numbers += x.numel()
        return self._perturbed[id(x)]

    def stand_in(self, view: Tensor, noise: Noise) -> Tensor:
        """Registers a view of a parameter to stand for the same view of the perturbed parameter, whose noise is
        `noise`."""
        self._noise[id(view)] = noise
        self._views.append(view)
        return view

    def _given(self, value: Any, function: Callable[..., Any]) -> Any:  # noqa: ANN401 (an argument of any function)
        if isinstance(value, Tensor):
            if isinstance(self._noise.get(id(value)), Factors):
                self.by_tensor.add(function)
            return self.perturbed(value)
        if isinstance(value, list | tuple) and self.holds(value):
            items = [self._given(item, function) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return value


def name_of(function: object) -> str:
    """The name of a torch function, for people."""
    name = str(getattr(function, "__name__", function))
    return str(getattr(getattr(function, "__self__", None), "__name__", name)) if name == "__get__" else name
