"""PyTorch's optimizers as settings of a run."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fedlearn.compat.optimizers import schedule_of, settings_of  # noqa: E402


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
        ("CosineAnnealingLR", {"T_max": 20}, "cosine"),
        ("CosineAnnealingLR", {"T_max": 20, "eta_min": 0.0}, "cosine"),
        ("CosineAnnealingLR", {"T_max": 20, "eta_min": 0.1}, None),
        ("PolynomialLR", {"total_iters": 20}, "linear"),
        ("PolynomialLR", {"power": 2.0}, None),
        ("StepLR", {"step_size": 3}, None),
    ],
)
def test_a_scheduler_becomes_a_schedule_or_a_note(name: str, options: dict[str, Any], expected: str | None) -> None:
    settings, notes = schedule_of(getattr(torch.optim.lr_scheduler, name), options)
    assert settings == ({} if expected is None else {"learning_rate_schedule": expected})
    assert [note.startswith("lr_scheduler: the rate is constant") for note in notes] == [True] * (expected is None)
    assert schedule_of(None, {}) == ({}, ())
