"""PyTorch's optimizers as settings of a run."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fedlearn.compat.optimizers import follows_figures, rate_factors, settings_of  # noqa: E402


@pytest.mark.parametrize(
    ("name", "options", "settings"),
    [
        ("Adam", {}, {"optimizer": "adam", "learning_rate": 0.001}),
        ("Adam", {"lr": 3e-3, "weight_decay": 0}, {"optimizer": "adam", "learning_rate": 3e-3, "weight_decay": 0.0}),
        ("Adam", {"betas": (0.8, 0.9)}, {"optimizer": "adam", "learning_rate": 0.001, "beta1": 0.8, "beta2": 0.9}),
        ("AdamW", {"weight_decay": 0.1}, {"optimizer": "adam", "learning_rate": 0.001, "weight_decay": 0.1}),
        ("SGD", {"lr": 0.1}, {"optimizer": "sgd", "learning_rate": 0.1, "beta1": 0.0}),
        ("SGD", {"momentum": 0.9}, {"optimizer": "sgd", "learning_rate": 0.001, "beta1": 0.9}),
    ],
)
def test_an_optimizer_becomes_settings(name: str, options: dict[str, Any], settings: dict[str, Any]) -> None:
    constant = {"learning_rate_schedule": "constant"}
    assert settings_of(getattr(torch.optim, name), options) == {**settings, **constant}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("RMSprop", {}),
        ("Adam", {"momentum": 0.9}),
        ("SGD", {"betas": (0.9, 0.9)}),
        ("Adam", {"weight_decay": 0.1}),
        ("AdamW", {"amsgrad": True}),
    ],
)
def test_what_has_no_meaning_here_is_refused_with_the_remedy(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"optimizer: expected .*; (take Adam|leave it out)"):
        settings_of(getattr(torch.optim, name), options)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("StepLR", {"step_size": 2, "gamma": 0.5}, [1.0, 1.0, 0.5, 0.5]),
        ("MultiStepLR", {"milestones": [1, 3]}, [1.0, 0.1, 0.1, 0.01]),
        ("ExponentialLR", {"gamma": 0.5}, [1.0, 0.5, 0.25, 0.125]),
        ("LambdaLR", {"lr_lambda": lambda epoch: 1 / (epoch + 1)}, [1.0, 0.5, 1 / 3, 0.25]),
        ("CosineAnnealingLR", {"T_max": 4, "eta_min": 0.1}, [1.0, 0.92677670, 0.75, 0.57322330]),
        ("LinearLR", {"start_factor": 0.5, "total_iters": 2}, [0.5, 0.75, 1.0, 1.0]),
        ("PolynomialLR", {"total_iters": 4}, [1.0, 0.75, 0.5, 0.25]),
    ],
)
def test_a_scheduler_is_followed_epoch_by_epoch(name: str, options: dict[str, Any], expected: list[float]) -> None:
    assert rate_factors(getattr(torch.optim.lr_scheduler, name), options, 0.2, epochs=4) == pytest.approx(expected)


def test_the_last_factor_of_a_scheduler_stays() -> None:
    options = {"max_lr": 0.2, "total_steps": 3}
    assert len(rate_factors(torch.optim.lr_scheduler.OneCycleLR, options, 0.2, epochs=9)) == 4


def test_without_a_scheduler_there_are_no_factors() -> None:
    assert rate_factors(None, {}, 0.2, epochs=4) == []
    assert follows_figures(torch.optim.lr_scheduler.ReduceLROnPlateau)
    assert not follows_figures(torch.optim.lr_scheduler.StepLR)
    assert not follows_figures(None)
