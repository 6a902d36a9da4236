"""Hidden matrices in a replica: steps of tensors that depend on whole matrices."""

import os
from pathlib import Path

import numpy as np
import pytest

import es_core
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam, TensorStep, exact_arithmetic
from fedlearn.es.optimizers.muon import Muon
from fedlearn.es.replica import Replica, genesis
from tests.es.replicas import update_of

LAYOUT = ParameterLayout(
    (
        TensorSpec("embedding", (30, 16)),
        TensorSpec("first", (16, 16), n_hidden=1),
        TensorSpec("bias", (16,)),
        TensorSpec("fused", (48, 16), n_hidden=3),
        TensorSpec("side by side", (16, 48), n_hidden=-3),
        TensorSpec("slow", (16, 16), scale=0.5, n_hidden=1),
        TensorSpec("still", (16, 16), scale=0.0, n_hidden=1),
        TensorSpec("head", (20, 16)),
    )
)
WEIGHTS = np.linspace(-1, 1, LAYOUT.size, dtype=np.float32)
MUON = Muon(0.01)
RESIDENT = Path("/proc/self/statm")


def resident_bytes() -> int:
    return int(RESIDENT.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def replica(layout: ParameterLayout = LAYOUT, *, threads: int = 1) -> Replica:
    whole = Replica(LAYOUT, genesis(LAYOUT, WEIGHTS, keeps_start=True), seed=99, row_masks=lambda _: None, threads=1)
    return Replica(layout, whole.snapshot(layout), seed=99, row_masks=lambda _: None, threads=threads, whole=LAYOUT)


@pytest.mark.parametrize(("decay", "towards"), [(0.0, "zero"), (0.1, "zero"), (0.1, "start")])
def test_each_hidden_matrix_takes_its_step_as_a_whole(decay: float, towards: str) -> None:
    update = update_of(0, optimizer=MUON, decay=decay, towards="start" if towards == "start" else "zero")
    moved, estimate = replica(), replica().replayed(update)
    moved.apply(update)
    numbers = MUON.advanced({})
    for spec, offset in zip(LAYOUT.tensors, LAYOUT.offsets, strict=True):
        interval = slice(offset, offset + spec.size)
        weights = WEIGHTS[interval].copy()
        by = TensorStep(
            numbers,
            gradient_scale=update.gradient_scale / (update.rank if spec.is_matrix else 1) ** 0.5,
            scale=spec.scale,
            decay=0.01 * decay if spec.is_matrix and towards == "zero" else 0.0,
            sides=spec.hidden_sides if spec.n_hidden else None,
            is_turned=spec.n_hidden < 0,
        )
        if towards == "start" and spec.scale:
            es_core.pull_towards(weights, WEIGHTS[interval], 0.01 * decay)
        optimizer = MUON if spec.n_hidden else Adam(0.01, 0.9, 0.99)
        with exact_arithmetic():
            if spec.scale:
                optimizer.step(weights, {slot: np.zeros_like(weights) for slot in MUON.slots}, estimate[interval], by)
        np.testing.assert_array_equal(moved.weights[interval], weights, err_msg=spec.name)


def test_parts_with_whole_matrices_take_the_same_steps() -> None:
    part = LAYOUT.part(["first", "bias", "slow", "head"])
    whole, own = replica(), replica(part, threads=2)
    for step in range(3):
        for each in (whole, own):
            each.apply(update_of(step, optimizer=MUON, decay=0.1))
    assert whole.digests([part]) == [own.digest]


def test_state_goes_on_from_a_snapshot() -> None:
    through, stopped = replica(), replica()
    for each in (through, stopped):
        each.apply(update_of(0, optimizer=MUON))
    again = Replica(LAYOUT, stopped.snapshot(), seed=99, row_masks=lambda _: None)
    for each in (through, again):
        each.apply(update_of(1, optimizer=MUON))
    assert again.digest == through.digest


@pytest.mark.skipif(not RESIDENT.exists(), reason="the memory of a process is Linux's to tell")
def test_second_moments_of_hidden_matrices_take_no_memory() -> None:
    layout = ParameterLayout((TensorSpec("hidden", (2**15, 128), n_hidden=2**8), TensorSpec("bias", (128,))))
    estimate, weights = np.zeros(layout.size, dtype=np.int32), np.zeros(layout.size, dtype=np.float32)
    own = Replica(layout, genesis(layout, weights, threads=1), seed=99, row_masks=lambda _: None, threads=1)
    before = resident_bytes()
    own.take(update_of(0, optimizer=MUON), estimate)
    assert len(own.digest) == 8
    assert resident_bytes() - before < 1.5 * weights.nbytes
    assert own.slots["second_moment"].nbytes == weights.nbytes


def test_other_optimizers_do_not_see_hidden_matrices() -> None:
    plain = ParameterLayout(tuple(TensorSpec(spec.name, spec.shape, spec.scale) for spec in LAYOUT.tensors))
    seeing = replica()
    blind = Replica(plain, genesis(plain, WEIGHTS, keeps_start=True), seed=99, row_masks=lambda _: None)
    for each in (seeing, blind):
        each.apply(update_of(0))
    assert seeing.digest == blind.digest
