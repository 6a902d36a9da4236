import numpy as np
import pytest

import es_core
from fedlearn.coordination.audits.audit import loss_difference, loss_gaps
from fedlearn.coordination.audits.tolerance import ANYTHING, BYTES, FLOATS, LOCAL_STEPS, tolerances_of
from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers import Sgd
from fedlearn.es.perturbation import LocalSteps, Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.text.windows import WindowShape

GROUP = 32
KERNELS = es_core.supported_isas()


def invitation(kind: str, **options: str) -> Invitation:
    return Invitation(kind, 1, dict(options), {})


def test_a_run_is_judged_by_its_kind_and_precision() -> None:
    assert tolerances_of(invitation("rnn", precision="float32")) is FLOATS
    assert tolerances_of(invitation("rnn", precision="int8")) is BYTES
    assert tolerances_of(invitation("function")) is ANYTHING
    assert tolerances_of(invitation("graph")) is ANYTHING, "of a graph that cannot be read nothing is known"
    assert FLOATS.of(Perturbation(0.1, 1)) is FLOATS.losses
    assert BYTES.of(Perturbation(0.1, 1, "activations", "closed-form")) is BYTES.summed


def losses_of(isa: str, step: int, sigma: float) -> Float32Array:
    shape = WindowShape(1, 8, 16)
    objective = RnnObjective(
        seed=1, vocab_size=65, hidden_size=24, n_layers=1, window=shape, embedding_scale=1.0, precision="float32"
    )
    tokens = {"tokens": np.random.default_rng(step).integers(0, 65, 1000).astype(np.uint16)}
    es_core.select_isa(isa)
    try:
        trials = Trials(step, Perturbation(sigma, 1), GROUP, 0, 4 * GROUP)
        return objective.evaluate(objective.initial_weights(), tokens, trials, threads=1)
    finally:
        es_core.select_isa(KERNELS[0])


@pytest.mark.parametrize("sigma", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("other", KERNELS[1:])
def test_honest_kernels_are_ten_times_closer_than_they_must_be(other: str, sigma: float) -> None:
    for step in range(4):
        own, claimed = (losses_of(isa, step, sigma) for isa in (KERNELS[0], other))
        assert loss_difference(claimed, own, GROUP, FLOATS.losses) < 0.1


def test_what_is_allowed_is_far_below_the_signal() -> None:
    own = losses_of(KERNELS[0], 0, 0.02)
    spread = own.reshape(-1, GROUP).std(axis=1)
    assert (FLOATS.losses.allowed(own, GROUP) < 0.005 * spread).all()
    lie = own + np.float32(0.02) * np.float32(spread.min()) * np.resize(np.array([1, -1], np.float32), own.size)
    assert loss_difference(lie, own, GROUP, FLOATS.losses) > 1.0
    assert loss_difference(lie, own, GROUP) < 1.0
    assert loss_gaps(lie, own, GROUP) == pytest.approx(np.full(4, 0.02 * spread.min()), rel=0.01)


def test_local_steps_have_a_tolerance_of_their_own_whatever_the_task() -> None:
    local = Perturbation(0.0, 0, "nothing", local_steps=LocalSteps(Sgd(0.1, 0.0), 1))
    gradients = Perturbation(0.0, 0, "nothing")
    for tolerances in (FLOATS, BYTES, ANYTHING):
        assert tolerances.of(local) is LOCAL_STEPS
        assert tolerances.of(gradients) is tolerances.summed


def test_a_loss_that_has_no_part_in_a_sum_may_be_further_off() -> None:
    own, claimed = np.array([1.0], np.float32), np.array([1.00005], np.float32)
    assert loss_difference(claimed, own, 1, FLOATS.losses) > 1.0
    for tolerances in (FLOATS, BYTES, ANYTHING):
        assert loss_difference(claimed, own, 1, tolerances.summed) < 0.6
