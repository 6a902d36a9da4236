from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fedlearn.es.layout import Float32Array  # noqa: E402
from fedlearn.tasks.environment.policy import FunctionPolicy, ModulePolicy  # noqa: E402

N_MEMBERS, N_EPISODES = 3, 2


def stacked_of(policy: ModulePolicy) -> dict[str, Float32Array]:
    rng = np.random.default_rng(1)
    return {
        name: rng.standard_normal((N_MEMBERS, *array.shape)).astype(np.float32)
        for name, array in policy.tensors.items()
    }


def alone(module: nn.Module, own: dict[str, Float32Array], seen: Float32Array) -> Float32Array:
    """What the module itself gives for one member's observations."""
    tensors = {name: torch.from_numpy(array) for name, array in own.items()}
    with torch.no_grad():
        outputs: Float32Array = torch.func.functional_call(module, tensors, (torch.from_numpy(seen),)).numpy()
    return outputs


def frozen_bias() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    module[0].bias.requires_grad_(False)
    return module


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    module[1].register_forward_hook(lambda _module, _given, given: 2.0 * given)
    return module


def twice() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer)


class Own(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        return -super().forward(x)


PERCEPTRONS: list[Callable[[], nn.Module]] = [
    lambda: nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)),
    lambda: nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 5), nn.GELU(), nn.Linear(5, 1)),
    lambda: nn.Sequential(nn.LeakyReLU(0.3), nn.Linear(4, 4), nn.Sigmoid(), nn.Identity()),
]
OTHERS: list[Callable[[], nn.Module]] = [
    lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)),
    lambda: nn.Sequential(Own(4, 4), nn.Tanh()),
    lambda: nn.Linear(4, 2),
    frozen_bias,
    hooked,
    twice,
]


@pytest.mark.parametrize("make", [*PERCEPTRONS, *OTHERS])
@pytest.mark.parametrize("shape", [(4,), (2, 4)])
def test_members_act_as_each_would_alone(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    policy = ModulePolicy(make)
    stacked = stacked_of(policy)
    seen = np.random.default_rng(2).standard_normal((N_MEMBERS, N_EPISODES, *shape)).astype(np.float32)
    outputs = policy.forward(stacked)(seen)
    for member in range(N_MEMBERS):
        own = {name: array[member] for name, array in stacked.items()}
        np.testing.assert_allclose(outputs[member], alone(policy.module, own, seen[member]), rtol=1e-5, atol=1e-6)


def test_perceptrons_need_no_vmap(monkeypatch: pytest.MonkeyPatch) -> None:
    n_called = 0
    before = torch.vmap

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        together = before(function)

        def call(*given: object) -> object:
            nonlocal n_called
            n_called += 1
            return together(*given)

        return call

    monkeypatch.setattr(torch, "vmap", counted)
    for make, expected in [*((make, 0) for make in PERCEPTRONS), *((make, 1) for make in OTHERS)]:
        n_called = 0
        policy = ModulePolicy(make)
        policy.forward(stacked_of(policy))(np.ones((N_MEMBERS, N_EPISODES, 4), dtype=np.float32))
        assert n_called == expected


class Two(nn.Linear):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[name-defined, override]
        return super().forward(x), x


@pytest.mark.parametrize("make", [lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh()), lambda: nn.Linear(3, 2)])
def test_a_module_for_other_observations_is_told_their_size(make: Callable[[], nn.Module]) -> None:
    policy = ModulePolicy(make)
    seen = np.zeros((N_MEMBERS, N_EPISODES, 4), dtype=np.float32)
    with pytest.raises(ValueError, match=r"policy: expected a module that takes observations \[episodes, 4\], got one"):
        policy.forward(stacked_of(policy))(seen)


def test_several_outputs_of_a_policy_are_refused() -> None:
    policy, seen = ModulePolicy(lambda: Two(4, 2)), np.zeros((N_MEMBERS, N_EPISODES, 4), dtype=np.float32)
    with pytest.raises(ValueError, match=r"policy: .* gives outputs .*, got one that gives a tuple; let its forward"):
        policy.forward(stacked_of(policy))(seen)
    function = FunctionPolicy(lambda _, seen: (seen, seen[:, :1]), {"a": 0.0})
    with pytest.raises(ValueError, match=r"policy: expected outputs \[episodes, n\], got a tuple: "):
        function.forward({"a": np.zeros(N_MEMBERS, dtype=np.float32)})(seen)
