"""Kernels of the core, held to the same step in NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers import OPTIMIZERS, TensorStep, exact_arithmetic
from fedlearn.es.optimizers.hyperparameters import hyperparameters
from tests.es_core.wide_arrays import bits, random_arrays, wide_floats

WITH_KERNELS = [name for name, optimizer in OPTIMIZERS.items() if hasattr(optimizer, "plain_step")]
BETAS = (0.0, 0.5, 0.9, 0.999)
DECAYS = (0.0, 0.003, 1e-9)
"""None, some, and so little that float32 does not see it."""


def test_all_but_lion_and_clipup_have_kernels() -> None:
    assert WITH_KERNELS == ["adam", "sgd", "muon"]


@pytest.mark.parametrize("name", WITH_KERNELS)
@given(data=st.data(), seed=st.integers(0, 2**32), n=st.integers(0, 70), isa=st.sampled_from(es_core.supported_isas()))
def test_a_kernel_takes_the_step_of_numpy_to_the_bit(
    name: str, data: st.DataObject, seed: int, n: int, isa: str
) -> None:
    fields = hyperparameters(OPTIMIZERS[name])
    rate = data.draw(st.sampled_from([0.006, 0.3, 1e30]))
    optimizer = OPTIMIZERS[name](rate, **{field: data.draw(st.sampled_from(BETAS)) for field in fields})
    numbers: dict[str, float] = {}
    for _ in range(data.draw(st.sampled_from([1, 3, 1000]))):
        numbers = optimizer.advanced(numbers)
    by = TensorStep(
        numbers,
        gradient_scale=data.draw(st.sampled_from([-3.7e-7, 1e-40])),
        scale=data.draw(st.sampled_from([1.0, 0.3])),
        decay=data.draw(st.sampled_from(DECAYS)),
    )
    weights, first, _, estimate = random_arrays(seed, n)
    slots = dict.fromkeys(optimizer.slots, first)
    if "second_moment" in slots:
        slots["second_moment"] = np.abs(wide_floats(np.random.default_rng(seed), n))

    def moved(take_step: str) -> dict[str, list[str]]:
        new_weights, new_slots = weights.copy(), {slot: array.copy() for slot, array in slots.items()}
        getattr(optimizer, take_step)(new_weights, new_slots, estimate, by)
        arrays: dict[str, Float32Array] = {"weights": new_weights, **new_slots}
        return {array_name: bits(array) for array_name, array in arrays.items()}

    before = es_core.current_isa()
    es_core.select_isa(isa)
    try:
        kernels = moved("step")
    finally:
        es_core.select_isa(before)
    with exact_arithmetic():
        assert moved("plain_step") == kernels
