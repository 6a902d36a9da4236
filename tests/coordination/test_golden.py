from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import es_core
import fedlearn.es.sums.estimate
from fedlearn.coordination.audits.audit import loss_difference
from fedlearn.coordination.golden import AlteredCoreError, check_core
from fedlearn.tasks.rnn.golden import GOLDEN_TRIALS, GROUP_SIZE, GoldenTrials


def altered(function: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    """The function, whose result is changed."""
    return lambda *arguments, **named: change(function(*arguments, **named))


def one_sign_less(signs: Any) -> Any:  # noqa: ANN401
    signs[-1, -1] *= -1
    return signs


def one_unit_more(estimate: Any) -> Any:  # noqa: ANN401
    estimate[-1] += 1
    return estimate


@pytest.mark.usefixtures("isa")
def test_every_instruction_set_passes() -> None:
    check_core()


@pytest.mark.parametrize(
    ("function", "change", "said"),
    [
        ("member_signs", one_sign_less, "noise: expected digest f55fa581d9495ec7, got"),
        ("estimate_gradient", one_unit_more, "step: expected digest 76b95603a3e728a1, got"),
        ("normalized_utilities", lambda utilities: -utilities, "step: expected digest"),
        (
            "random_words",
            lambda words: words ^ 1,
            "losses of tanh units in float32, noise on weights: expected 4.367, ",
        ),
        (
            "rnn_member_losses",
            lambda losses: 1.02 * losses,
            "losses of gru units in float32, noise on weights: expected",
        ),
        (
            "rnn_member_losses",
            lambda losses: losses * np.nan,
            "losses of tanh units in int8, noise on weights: expected",
        ),
        (
            "rnn_member_losses",
            lambda losses: losses[::-1].copy(),
            "losses of tanh units in int8, noise on weights: expe",
        ),
        (
            "rnn_activation_gradient",
            lambda found: (1.02 * found[0], found[1]),
            "losses of tanh units in int8, noise on activations: expected",
        ),
    ],
)
def test_an_altered_kernel_is_told_by_what_it_computes(
    function: str, change: Callable[[Any], Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(es_core, function, altered(getattr(es_core, function), change))
    with pytest.raises(AlteredCoreError) as raised:
        check_core()
    assert said in str(raised.value)
    assert "install fedlearn anew, or set FEDLEARN_ISA=base" in str(raised.value)
    assert f"instruction set {es_core.current_isa()}" in str(raised.value)


def test_a_kernel_without_resets_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = es_core.rnn_member_losses
    monkeypatch.setattr(
        es_core, "rnn_member_losses", lambda *given, **named: fast(*given, **named | {"reset_token": -1})
    )
    with pytest.raises(AlteredCoreError, match=r"gru units in float32, noise on weights, with resets: expected 3\.826"):
        check_core()


@pytest.mark.parametrize("function", ["encode_rows", "decode_rows"])
def test_a_sum_that_is_coded_otherwise_is_told(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(coded: Any) -> Any:  # noqa: ANN401
        return (coded[0], coded[1][::-1].copy()) if isinstance(coded, tuple) else coded + 1

    # The module's own name: what is imported from the core is not looked up there again.
    monkeypatch.setattr(fedlearn.es.sums.estimate, function, altered(getattr(es_core, function), change))
    with pytest.raises(AlteredCoreError, match="sum: expected "):
        check_core()


@pytest.mark.parametrize("function", ["adam_step", "sgd_step", "pull_towards"])
def test_a_step_that_leaves_weights_alone_is_told(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(es_core, function, lambda *_, **__: None)
    with pytest.raises(AlteredCoreError, match="step: expected digest 76b95603a3e728a1, got"):
        check_core()


def test_a_core_of_another_version_is_told_by_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(es_core, "member_signs")
    with pytest.raises(AlteredCoreError, match=r"noise: expected a result, got AttributeError: .*member_signs"):
        check_core()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("trials", GOLDEN_TRIALS, ids=str)
def test_honest_kernels_are_far_within_the_tolerance(trials: GoldenTrials) -> None:
    expected = np.array(trials.expected, dtype=np.float32)
    assert loss_difference(trials.losses(), expected, GROUP_SIZE) < 0.1


@pytest.mark.parametrize("trials", [t for t in GOLDEN_TRIALS if t.space == "weights"], ids=str)
def test_golden_losses_are_those_of_the_naive_twin(trials: GoldenTrials, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = es_core.rnn_member_losses

    def naive(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        return fast(*arguments, **{**named, "int8": False, "naive": True})

    monkeypatch.setattr(es_core, "rnn_member_losses", naive)
    # Bytes round, by far less than members differ.
    allowed = 1e-5 if trials.precision == "float32" else 0.02
    np.testing.assert_allclose(trials.losses(), trials.expected, rtol=0, atol=allowed)
