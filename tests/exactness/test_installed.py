"""The installed extension comes to the golden digests: in this process, and on emulated older processors."""

import runpy
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import es_core
import fedlearn.es.replica
from fedlearn.es.golden import GOLDEN_NOISE, GOLDEN_STEP, GOLDEN_SUM
from fedlearn.storage.journal.journal import Journal
from fedlearn.storage.journal.segment import Header

Digests = dict[str, str]
OddArithmetic = Callable[[], AbstractContextManager[None]]
Float32Array = NDArray[np.float32]

FACE = Path(__file__).with_name("golden_face.py")


@pytest.fixture(scope="session")
def face() -> dict[str, Any]:
    """What golden_face.py defines."""
    return runpy.run_path(str(FACE))


@pytest.fixture(scope="session")
def journal(face: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of 200 steps."""
    path = tmp_path_factory.mktemp("exactness") / "journal"
    with Journal.open(path, Header(bytes(16), 0, bytes(8))) as journal:
        for update in face["training_updates"]():
            journal.append(update, bytes(8))
    return path


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_installed_extension_comes_to_the_golden_digests(
    threads: int, face: dict[str, Any], journal: Path, golden: Digests
) -> None:
    journal_digest = face["replay"](journal, threads=threads)
    assert face["digests"](es_core, threads=threads) | {"journal": journal_digest} == golden


@pytest.mark.usefixtures("isa")
def test_the_arithmetic_of_the_process_does_not_matter(
    odd_arithmetic: OddArithmetic, face: dict[str, Any], journal: Path, golden: Digests
) -> None:
    with odd_arithmetic():
        found = face["digests"](es_core, threads=2) | {"journal": face["replay"](journal, threads=2)}
    assert found == golden


@pytest.mark.parametrize(("processor", "chosen"), [("Nehalem", "base"), ("Haswell", "v3")])
def test_the_installed_extension_on_an_older_processor_comes_to_the_golden_digests(
    processor: str,
    chosen: str,
    journal: Path,
    emulator: Callable[[str], list[str]],
    printed: Callable[..., Digests],
    golden: Digests,
) -> None:
    command = (*emulator(processor), sys.executable, str(FACE), str(journal), "2")
    # NumPy's OpenBLAS takes an emulated Nehalem for a Haswell.
    trial = {
        "golden_noise": GOLDEN_NOISE.hex(),
        "golden_sum": GOLDEN_SUM.hex(),
        "golden_step": GOLDEN_STEP.hex(),
    }
    assert printed(*command, OPENBLAS_CORETYPE="Nehalem") == {"isa": chosen} | golden | trial


def test_the_golden_digests_are_those_of_plain_arithmetic(
    face: dict[str, Any], journal: Path, golden: Digests, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = SimpleNamespace(
        adam_step=plain_adam,
        sgd_step=plain_sgd,
        pull_towards=plain_pull,
        estimate_gradient=partial(es_core.estimate_gradient, naive=True),
        normalized_utilities=plain_utilities,
        sign_noise=es_core.sign_noise,
        member_signs=plain_member_signs,
    )
    monkeypatch.setattr(fedlearn.es.replica, "es_core", plain)
    journal_digest = face["replay"](journal, threads=1)
    assert face["digests"](plain, threads=1) | {"journal": journal_digest} == golden


def plain_member_signs(
    seed: int,
    step: int,
    first_member: int,
    n_members: int,
    factors: NDArray[np.int64],
    scales: Float32Array,
    **options: object,
) -> Float32Array:
    """As the golden digest has it: in antithetic pairs."""
    assert options["antithetic"]
    signs = np.empty((n_members, factors[:, 2].sum()), dtype=np.float32)
    for i, row in enumerate(signs):
        member = first_member + i
        first = 0
        for (tensor, factor, length), scale in zip(factors.tolist(), scales, strict=True):
            drawn = es_core.sign_noise(seed, step, member - member % 2, tensor, factor, 0, length)
            is_negated = member % 2 == 1 and factor % 2 == 0
            row[first : first + length] = drawn * (-scale if is_negated else scale)
            first += length
    return signs


def plain_utilities(losses: Float32Array, group_size: int, scale: float, resolution: float) -> NDArray[np.int8]:
    groups = losses.astype(np.float64).reshape(-1, group_size)
    means = groups.cumsum(axis=1)[:, -1:] / group_size
    with np.errstate(invalid="ignore"):
        utilities = np.clip(np.rint(resolution * (means - groups) / scale), -127, 127)
    return np.where(np.isfinite(means), utilities, 0).astype(np.int8).ravel()


def plain_adam(
    weights: Float32Array, m: Float32Array, v: Float32Array, estimate: NDArray[np.int32], **hyperparameters: float
) -> None:
    single = {name: np.float32(value) for name, value in hyperparameters.items()}
    gradient = estimate.astype(np.float32) * single["gradient_scale"]
    m[:] = single["beta1"] * m + np.float32(1.0 - hyperparameters["beta1"]) * gradient
    v[:] = single["beta2"] * v + np.float32(1.0 - hyperparameters["beta2"]) * (gradient * gradient)
    step = single["learning_rate"] * (m * single["correction1"])
    weights *= np.float32(1.0 - hyperparameters["decay"])
    weights -= step / (np.sqrt(v * single["correction2"]) + single["epsilon"])


def plain_sgd(
    weights: Float32Array, momentum_buffer: Float32Array, estimate: NDArray[np.int32], **hyperparameters: float
) -> None:
    single = {name: np.float32(value) for name, value in hyperparameters.items()}
    gradient = estimate.astype(np.float32) * single["gradient_scale"]
    momentum_buffer[:] = single["momentum"] * momentum_buffer + gradient
    weights *= np.float32(1.0 - hyperparameters["decay"])
    weights -= single["learning_rate"] * momentum_buffer


def plain_pull(weights: Float32Array, start: Float32Array, share: float) -> None:
    weights *= np.float32(1.0 - share)
    weights += np.float32(share) * start
