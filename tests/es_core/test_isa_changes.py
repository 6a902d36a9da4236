"""One thread chooses instruction sets while another computes: memory that one packed means nothing to another."""

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import es_core
from fedlearn.tasks.rnn.layout import rnn_layout

SHAPE = (66, 35, 2)
LAYOUT = rnn_layout(*SHAPE, embedding_scale=3.0)
N_GROUPS, GROUP_SIZE = 40, 4

Arrays = tuple[NDArray[Any], ...]


def network(rank: int) -> Arrays:
    """Table of tensors, scales and weights."""
    weights = np.random.default_rng(1).standard_normal(LAYOUT.size).astype(np.float32) * np.float32(0.3)
    scales = np.array([tensor.scale for tensor in LAYOUT.tensors], dtype=np.float32)
    return LAYOUT.table(rank), scales, weights


def trials() -> dict[str, Any]:
    return {
        "seed": 1,
        "step": 2,
        "first_member": 0,
        "group_size": GROUP_SIZE,
        "tokens": np.random.default_rng(2).integers(0, SHAPE[0], (N_GROUPS, 2, 12)).astype(np.uint16),
        "context": 5,
        "is_cold": (np.arange(N_GROUPS) % 2).astype(np.uint8),
        "sigma": 0.05,
        "threads": 2,
    }


def full_rank_losses() -> Arrays:
    return (es_core.rnn_member_losses(SHAPE, *network(0), **trials()),)


def low_rank_losses() -> Arrays:
    return (es_core.rnn_member_losses(SHAPE, *network(1), **trials()),)


def activation_gradient() -> Arrays:
    losses, estimate, _ = es_core.rnn_activation_gradient(SHAPE, *network(0), **trials(), logit_sigma=0.0, discount=0.7)
    return losses, estimate


def text_losses() -> Arrays:
    tokens = np.ascontiguousarray(trials()["tokens"][:, 0])
    state = np.zeros((N_GROUPS, *SHAPE[:0:-1]), dtype=np.float32)
    return es_core.rnn_text_losses(SHAPE, *network(0), tokens=tokens, state=state)


def estimate() -> Arrays:
    n_members = N_GROUPS * GROUP_SIZE
    gradient = es_core.estimate_gradient(
        LAYOUT.table(1),
        LAYOUT.size,
        seed=1,
        step=2,
        group_size=GROUP_SIZE,
        spans=[(0, n_members)],
        utilities=(np.arange(n_members) % 100).astype(np.int8),
        row_masks=np.ones((N_GROUPS, SHAPE[0] + SHAPE[1] * SHAPE[2]), dtype=np.uint8),
        threads=2,
    )
    return (gradient,)


@pytest.fixture
def changing_isas() -> Iterator[Callable[[], None]]:
    """Begins to choose one instruction set after the other, in another thread and without pause."""
    before, interval = es_core.current_isa(), sys.getswitchinterval()
    is_done = threading.Event()

    def change() -> None:
        while not is_done.is_set():
            for isa in es_core.supported_isas():
                es_core.select_isa(isa)

    changing = threading.Thread(target=change)
    sys.setswitchinterval(1e-5)
    yield changing.start
    is_done.set()
    if changing.is_alive():
        changing.join()
    sys.setswitchinterval(interval)
    es_core.select_isa(before)


@pytest.mark.skipif(len(es_core.supported_isas()) < 2, reason="this processor has one instruction set")
@pytest.mark.parametrize(
    "call",
    [full_rank_losses, low_rank_losses, activation_gradient, text_losses, estimate],
    ids=lambda call: call.__name__,
)
def test_a_call_keeps_the_instruction_set_that_it_began_with(
    call: Callable[[], Arrays], changing_isas: Callable[[], None]
) -> None:
    def results() -> tuple[bytes, ...]:
        return tuple(array.tobytes() for array in call())

    pure = set()
    for isa in es_core.supported_isas():
        es_core.select_isa(isa)
        pure.add(results())
    changing_isas()
    assert {results() for _ in range(20)} <= pure
