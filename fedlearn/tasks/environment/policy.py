"""Policies for many members at once: an unmodified torch module, or a plain function of named arrays."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array

if TYPE_CHECKING:
    import torch

Stacked = Mapping[str, Float32Array]
"""Tensors of some members by name, [members, *shape]."""

Forward = Callable[[Float32Array], NDArray[Any]]
"""A function from observations [members, episodes, ...] to outputs [members, episodes, ...]."""

Layer = Callable[["torch.Tensor"], "torch.Tensor"]
"""A function from [members, episodes, n] to [members, episodes, m]."""


@final
class ModulePolicy:
    """A policy that is a torch module, or a function that makes one, called when first needed with the run's seed.

    The module maps float32 [episodes, *shape of an observation] to outputs [episodes, n].
    """

    def __init__(self, policy: "torch.nn.Module | Callable[[], torch.nn.Module]") -> None:
        self._policy, self._seed = policy, 0

    def draw_weights(self, seed: int) -> None:
        """Makes the module anew from this seed where a function makes it."""
        if seed != self._seed:
            self._seed = seed
            self.__dict__.pop("module", None)

    @cached_property
    def module(self) -> "torch.nn.Module":
        import torch

        policy = self._policy
        if not isinstance(policy, torch.nn.Module):
            with torch.random.fork_rng():
                torch.manual_seed(self._seed)
                policy = policy()
            if not isinstance(policy, torch.nn.Module):
                raise ValueError(f"policy: expected a torch module or a function that makes one, got {policy!r}")
        return policy.float().eval()

    @property
    def tensors(self) -> dict[str, Float32Array]:
        """The initial values of the tensors to train."""
        return {name: p.detach().numpy() for name, p in self.module.named_parameters() if p.requires_grad}

    @property
    def frozen(self) -> dict[str, NDArray[Any]]:
        """Arrays that are not trained."""
        fixed = {name: p for name, p in self.module.named_parameters() if not p.requires_grad}
        return {name: tensor.detach().numpy() for name, tensor in (*fixed.items(), *self.module.named_buffers())}

    def forward(self, stacked: Stacked) -> Forward:
        """The policies of these members, ready for many observations."""
        import torch

        tensors = {name: torch.from_numpy(array) for name, array in stacked.items()}

        def one(own: dict[str, torch.Tensor], observations: torch.Tensor) -> Any:  # noqa: ANN401
            return torch.func.functional_call(self.module, own, (observations,))

        together, layers = torch.vmap(one), _layers(self.module, tensors)

        def forward(observations: Float32Array) -> NDArray[Any]:
            seen = torch.from_numpy(observations)
            in_layers = layers is not None and seen.dim() == 3
            try:
                with torch.inference_mode():
                    outputs = (
                        reduce(lambda x, layer: layer(x), layers or (), seen) if in_layers else together(tensors, seen)
                    )
            except RuntimeError as error:  # as torch says that shapes don't fit
                raise ValueError(
                    f"policy: expected a module that takes observations [episodes, {_listed(seen.shape[2:])}], "
                    f"got one that does not: {error}"
                ).with_traceback(error.__traceback__) from error
            if not isinstance(outputs, torch.Tensor):
                raise ValueError(
                    f"policy: expected a module that gives outputs [episodes, n], got one that gives a "
                    f"{type(outputs).__name__}; let its forward return the outputs alone"
                )
            array: NDArray[Any] = outputs.numpy()
            return array

        return forward


def _listed(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))


def _layers(module: "torch.nn.Module", tensors: Mapping[str, "torch.Tensor"]) -> "list[Layer] | None":
    """The layers of a plain perceptron, each for all members at once; None for other modules.

    `torch.vmap` does the same arithmetic, but takes twenty times as long to find out which.
    """
    from torch import nn

    pointwise = (nn.Tanh, nn.ReLU, nn.ELU, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.Sigmoid, nn.Softplus, nn.Identity)
    if type(module) is not nn.Sequential or any(type(layer) not in (nn.Linear, *pointwise) for layer in module):
        return None
    named = dict(module.named_children())
    is_hooked = any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    if is_hooked or len(named) < len(module) or set(tensors) != set(dict(module.named_parameters())):
        return None
    return [
        partial(_affine, tensors[f"{name}.weight"].transpose(1, 2), tensors.get(f"{name}.bias"))
        if isinstance(layer, nn.Linear)
        else layer
        for name, layer in named.items()
    ]


def _affine(weight: "torch.Tensor", bias: "torch.Tensor | None", x: "torch.Tensor") -> "torch.Tensor":
    """The product of x [members, episodes, n] and weight [members, n, m], plus bias [members, m]."""
    return x.bmm(weight) if bias is None else bias.unsqueeze(1).baddbmm(x, weight)


class ArrayPolicy:
    """What policies of named arrays share: all of these, float32, are trained."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        self.tensors = {name: np.array(array, dtype=np.float32) for name, array in start.items()}
        """The initial values of the tensors to train."""
        self.frozen: dict[str, NDArray[Any]] = {}
        """Arrays that are not trained: none."""

    def draw_weights(self, seed: int) -> None:
        """Draws those initial values anew that are random, from this seed; given ones are not."""


@final
class FunctionPolicy(ArrayPolicy):
    """A policy that is a function `policy(arrays, observations)` of named arrays.

    It maps observations [episodes, *shape of an observation] to outputs [episodes, n].
    """

    def __init__(self, policy: Callable[..., Any], start: Mapping[str, Any]) -> None:
        super().__init__(start)
        self._policy = policy

    def forward(self, stacked: Stacked) -> Forward:
        n_members = len(next(iter(stacked.values())))
        members = [{name: array[i] for name, array in stacked.items()} for i in range(n_members)]

        def forward(observations: Float32Array) -> NDArray[Any]:
            outputs = [self._policy(own, seen) for own, seen in zip(members, observations, strict=True)]
            try:
                array = np.stack(outputs)
            except ValueError as error:
                found = type(outputs[0]).__name__
                raise ValueError(f"policy: expected outputs [episodes, n], got a {found}: {error}") from error
            return array

        return forward
