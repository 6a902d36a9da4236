from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace

import pytest

import es_core
import fedlearn.es.noise
import fedlearn.es.optimizers.adam
import fedlearn.es.optimizers.arithmetic
import fedlearn.es.optimizers.sgd
import fedlearn.es.replica
import fedlearn.es.shaping
from fedlearn.es.golden import GOLDEN_NOISE, GOLDEN_STEP, GOLDEN_SUM, golden_noise, golden_step, golden_sum

OddArithmetic = Callable[[], AbstractContextManager[None]]

USERS = {
    "random_words": None,
    "member_signs": fedlearn.es.noise,
    "estimate_gradient": fedlearn.es.replica,
    "normalized_utilities": fedlearn.es.shaping,
    "adam_step": fedlearn.es.optimizers.adam,
    "sgd_step": fedlearn.es.optimizers.sgd,
    "pull_towards": fedlearn.es.replica,
    "FloatGuard": fedlearn.es.optimizers.arithmetic,
}
"""Functions of the core that noise and steps are made of."""


@pytest.mark.usefixtures("isa")
def test_every_instruction_set_comes_to_the_golden_bytes() -> None:
    assert golden_noise() == GOLDEN_NOISE
    assert golden_step() == GOLDEN_STEP
    assert golden_sum() == GOLDEN_SUM


@pytest.mark.parametrize("odd_arithmetic", ["flush-to-zero"], indirect=True)
def test_a_process_that_flushes_to_zero_comes_to_the_golden_bytes(odd_arithmetic: OddArithmetic) -> None:
    with odd_arithmetic():
        found = golden_noise(), golden_sum(), golden_step()
    assert found == (GOLDEN_NOISE, GOLDEN_SUM, GOLDEN_STEP)


def test_the_naive_twin_of_the_estimate_comes_to_the_golden_step(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = es_core.estimate_gradient
    calls = []

    def naive(*arguments: object, **named: object) -> object:
        calls.append(named)
        return fast(*arguments, **{**named, "naive": True})  # type: ignore[arg-type]

    monkeypatch.setattr(es_core, "estimate_gradient", naive)
    assert golden_step() == GOLDEN_STEP
    assert len(calls) == 6


@pytest.mark.parametrize("name", USERS)
def test_a_core_without_one_of_its_functions_does_not_get_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    poorer = SimpleNamespace(**{each: getattr(es_core, each) for each in es_core.__all__ if each != name})
    for module in (fedlearn.es.golden, *USERS.values()):
        if module is not None:
            monkeypatch.setattr(module, "es_core", poorer)
    with pytest.raises(AttributeError, match=name):
        (golden_noise(), golden_step())
