"""Batch norms and dropout of models that are trained in parts."""

import copy
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fedlearn.compat.normalization import in_training_mode, measure_averages  # noqa: E402


def model() -> nn.Sequential:
    torch.manual_seed(5)
    made = nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.Flatten(), nn.BatchNorm1d(27, affine=False))
    with torch.no_grad():
        made[1].load_state_dict({"weight": torch.tensor([0.5, 2.0, -1.0]), "bias": torch.ones(3)}, strict=False)
    return made


def test_a_part_is_normalized_by_its_own_rows_as_in_training() -> None:
    whole, x = model().train(), torch.randn(6, 1, 4, 4)
    made = in_training_mode(whole)
    torch.testing.assert_close(made(x), whole(x))
    assert dict(made.named_parameters()).keys() == dict(whole.named_parameters()).keys()


def test_the_given_model_keeps_its_batch_norms_and_its_mode() -> None:
    whole = model().train()
    in_training_mode(whole)
    assert isinstance(whole[1], nn.BatchNorm2d)
    assert whole.training


def test_a_lock_is_shared_by_copies() -> None:
    whole = nn.Linear(2, 2)
    whole.lock = threading.Lock()  # type: ignore[assignment]
    made = in_training_mode(whole)
    assert made.lock is whole.lock
    assert made.weight is not whole.weight


def test_dropout_drops_and_averages_of_instance_norms_stay() -> None:
    whole = nn.Sequential(nn.Dropout(0.5), nn.InstanceNorm1d(2, track_running_stats=True)).eval()
    made: Any = in_training_mode(whole)
    assert made[0](torch.ones(1, 1000)).eq(0.0).any()
    made[1](torch.randn(3, 2, 5))
    assert made[1].running_mean.eq(0.0).all()
    assert not whole.training


def test_averages_are_those_of_the_rows() -> None:
    whole, x = model(), 3.0 + 2.0 * torch.randn(40, 1, 4, 4)
    momentum = whole[1].momentum
    measure_averages(whole, [torch.zeros(4, 1, 4, 4)])
    measure_averages(whole, torch.split(x, 10))
    convolved = whole[0](x)
    torch.testing.assert_close(whole[1].running_mean, convolved.mean((0, 2, 3)))
    assert whole[1].momentum == momentum
    assert not whole.training
    torch.testing.assert_close(whole(x).mean(0), torch.zeros(27), atol=0.05, rtol=0)


def test_a_model_without_averages_is_left_as_it_is() -> None:
    plain = nn.Linear(2, 2)
    before = copy.deepcopy(plain.state_dict())
    measure_averages(plain, [])
    assert all(torch.equal(before[name], tensor) for name, tensor in plain.state_dict().items())
