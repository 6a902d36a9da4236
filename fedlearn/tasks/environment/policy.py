"""Policies for many members at once: an unmodified torch module, or a plain function of named arrays."""

from collections.abc import Callable, Mapping
from functools import cached_property
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


@final
class ModulePolicy:
    """A policy that is a torch module, or a function that makes one, called when first needed with a fixed seed.

    The module maps float32 [episodes, *shape of an observation] to outputs [episodes, n].
    """

    def __init__(self, policy: "torch.nn.Module | Callable[[], torch.nn.Module]") -> None:
        self._policy = policy

    @cached_property
    def module(self) -> "torch.nn.Module":
        import torch

        policy = self._policy
        if not isinstance(policy, torch.nn.Module):
            with torch.random.fork_rng():
                torch.manual_seed(0)
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

        together = torch.vmap(one)

        def forward(observations: Float32Array) -> NDArray[Any]:
            with torch.inference_mode():
                outputs: NDArray[Any] = together(tensors, torch.from_numpy(observations)).numpy()
            return outputs

        return forward


@final
class FunctionPolicy:
    """A policy that is a function `policy(arrays, observations)` of named arrays.

    It maps observations [episodes, *shape of an observation] to outputs [episodes, n].
    """

    def __init__(self, policy: Callable[..., Any], start: Mapping[str, Any]) -> None:
        self._policy = policy
        self._start = {name: np.array(array, dtype=np.float32) for name, array in start.items()}

    @property
    def tensors(self) -> dict[str, Float32Array]:
        return self._start

    @property
    def frozen(self) -> dict[str, NDArray[Any]]:
        return {}

    def forward(self, stacked: Stacked) -> Forward:
        n_members = len(next(iter(stacked.values())))
        members = [{name: array[i] for name, array in stacked.items()} for i in range(n_members)]

        def forward(observations: Float32Array) -> NDArray[Any]:
            return np.stack([self._policy(own, seen) for own, seen in zip(members, observations, strict=True)])

        return forward


Policy = ModulePolicy | FunctionPolicy
"""A network, or anything else with tensors to train."""
