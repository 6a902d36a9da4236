from functools import cache
from typing import Literal

import numpy as np
import pytest

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.es.perturbation import Head, Perturbation
from fedlearn.es.sums.estimate import decode_estimate
from fedlearn.es.trials import Trials
from fedlearn.text.windows import cut_windows
from tests.tasks.rnn.networks import SEED, VOCAB, rnn_of, text_of, weights_of

DATA = {"tokens": text_of()}
N_GROUPS = 4000


def summed_trials(noise: Perturbation, group_size: int = 64) -> Trials:
    return Trials(step=9, perturbation=noise, group_size=group_size, first_member=0, n_members=group_size * N_GROUPS)


@cache
def loss_gradient(reset_token: int) -> dict[str, Float32Array]:
    """Of the mean loss over the windows of N_GROUPS groups, by differences along each parameter."""
    objective = rnn_of(context=0, batch_size=1, reset_token=reset_token)
    weights = weights_of(objective)
    still = summed_trials(Perturbation(1e-9, 1), group_size=1)

    def loss(shifted: Float32Array) -> float:
        return float(objective.evaluate(shifted, DATA, still, threads=0).mean(dtype=np.float64))

    gradient, here = np.zeros_like(weights), loss(weights)
    for place in range(weights.size):
        shift = np.zeros_like(weights)
        shift[place] = 3e-3
        gradient[place] = (loss(weights + shift) - here) / 3e-3
    return objective.layout.split(gradient)


@pytest.mark.parametrize(
    ("space", "head"), [("weights", "closed-form"), ("activations", "perturbed"), ("activations", "closed-form")]
)
@pytest.mark.parametrize("reset_token", [-1, 5])
def test_summed_trials_tell_the_gradient(
    space: Literal["weights", "activations"], head: Head, reset_token: int
) -> None:
    noise = Perturbation(0.01, 1, space, head, logit_sigma=0.01, discount=1.0)
    objective = rnn_of(context=0, batch_size=1, reset_token=reset_token)
    results = objective.gradient_sum(weights_of(objective), DATA, summed_trials(noise), threads=0)
    scales = np.concatenate([np.full(tensor.size, tensor.scale) for tensor in objective.layout.tensors])
    gradient = decode_estimate(objective.layout, results.estimate) / (es_core.ESTIMATE_UNIT * N_GROUPS * scales)
    told = objective.layout.split(gradient.astype(np.float32))
    for name, expected in loss_gradient(reset_token).items():
        slope = (told[name] * expected).sum() / (expected**2).sum()
        # All parameters' noise moves the losses by which the few numbers of the initial state are judged.
        assert slope == pytest.approx(1.0, abs=0.5 if name == "initial_state" else 0.25), name
        assert np.corrcoef(told[name].reshape(-1), expected.reshape(-1))[0, 1] > 0.3, name
        if head == "closed-form" and name.startswith("head."):
            assert np.linalg.norm(told[name] - expected) < 0.02 * np.linalg.norm(expected), name


def test_members_leave_a_head_in_closed_form_alone() -> None:
    objective, weights = rnn_of(), weights_of(rnn_of())
    silent = weights.copy()
    for name, part in objective.layout.split(silent).items():
        if not name.startswith("head."):
            part[:] = 0.0
    noise = Perturbation(0.02, 1, "weights", "closed-form")
    # A network whose units are silent differs only by its embedding's noise, which a zero head cannot show.
    objective.layout.split(silent)["head.weight"][:] = 0.0
    results = objective.gradient_sum(silent, DATA, summed_trials(noise), threads=1)
    groups = results.losses.reshape(N_GROUPS, -1)
    np.testing.assert_allclose(groups - groups[:, :1], 0.0, atol=1e-6)


def test_groups_with_a_broken_loss_say_nothing_of_a_head_in_closed_form() -> None:
    objective = rnn_of(context=0, scored=1, batch_size=1)
    silent = np.zeros(objective.layout.size, dtype=np.float32)
    parts = objective.layout.split(silent)
    # Token 0 makes all units say 1, which then add up to more than a float holds; any other leaves them silent.
    parts["embedding.weight"][0] = 20.0
    parts["head.weight"][0] = 1e38
    trials = summed_trials(Perturbation(1e-38, 1, "weights", "closed-form"), group_size=4)
    results = objective.gradient_sum(silent, DATA, trials, threads=1)
    windows = cut_windows(
        text_of(), objective.window, seed=SEED, step=trials.step, first_group=0, n_groups=N_GROUPS
    ).tokens[:, 0]
    is_finite = windows[:, 0] != 0
    assert (np.isfinite(results.losses.reshape(-1, 4)) == is_finite[:, np.newaxis]).all()
    assert not is_finite.all()
    expected = is_finite.sum() / VOCAB - np.bincount(windows[is_finite, 1], minlength=VOCAB)
    told = objective.layout.split(decode_estimate(objective.layout, results.estimate).astype(np.float32))
    np.testing.assert_allclose(told["head.bias"] / es_core.ESTIMATE_UNIT, expected, rtol=0.01)
