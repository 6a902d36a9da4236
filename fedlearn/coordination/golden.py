"""The golden trial: a machine computes known numbers before it computes for others."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import es_core
from fedlearn.coordination.audits.audit import loss_difference
from fedlearn.es.golden import GOLDEN_NOISE, GOLDEN_STEP, GOLDEN_SUM, golden_noise, golden_step, golden_sum
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.rnn.golden import GOLDEN_TRIALS, GROUP_SIZE, GoldenTrials


class AlteredCoreError(ValueError):
    """Raised where this machine computes other numbers than this version of fedlearn does."""


def check_core() -> None:
    """Checks that this machine finds known noise, sums and steps to the bit, and known losses.

    Raises:
        AlteredCoreError: it finds others.
    """
    found = "; ".join(_problems())
    if found:
        raise AlteredCoreError(
            f"golden trial: {found}; what this machine computes with instruction set {es_core.current_isa()} would be "
            "false: install fedlearn anew, or set FEDLEARN_ISA=base, and report this"
        )


def _problems() -> Iterator[str]:
    checks: list[tuple[str, Callable[[], str]]] = [
        ("noise", lambda: _digest_problem(golden_noise(), GOLDEN_NOISE)),
        ("sum", lambda: _digest_problem(golden_sum(), GOLDEN_SUM)),
        ("step", lambda: _digest_problem(golden_step(), GOLDEN_STEP)),
        *((f"losses of {trials}", partial(_loss_problem, trials)) for trials in GOLDEN_TRIALS),
    ]
    for what, check in checks:
        try:
            problem = check()
        except Exception as error:  # a core of another version may lack functions, or want other arguments
            problem = f"expected a result, got {type(error).__name__}: {error}"
        if problem:
            yield f"{what}: {problem}"


def _digest_problem(digest: bytes, expected: bytes) -> str:
    return "" if digest == expected else f"expected digest {expected.hex()}, got {digest.hex()}"


def _loss_problem(trials: GoldenTrials) -> str:
    """Compares losses with the tolerance of audits."""
    expected, losses = np.array(trials.expected, dtype=np.float32), trials.losses()
    difference = loss_difference(losses, expected, GROUP_SIZE)
    if difference <= 1.0:
        return ""
    return f"expected {_shown(expected)}, got {_shown(losses)}, {difference:.3g} times what kernels may differ by"


def _shown(losses: Float32Array) -> str:
    return ", ".join(f"{loss:.4g}" for loss in losses)
