import ctypes
import inspect
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import es_core
from fedlearn.config import RunConfig
from tests.loops import run
from tests.run_folders import rnn_config

_NICENESS = 18
"""One less than a volunteer's, which so can be told."""

# Servers of tests show no page unless they are told to.
os.environ["FEDLEARN_BOARD"] = "0"

# A test runs on each processor, so libraries get one thread: several would spin while they wait for one another, and so
# keep the processor. Tests of several threads name their number.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

# Volunteers run at the lowest priority; beside tests of the usual one they would hardly run at all.
if hasattr(os, "nice"):
    os.nice(_NICENESS - os.nice(0))

# An example may take long on a busy machine, which says nothing of the code.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

_MXCSR_BITS = {"flush-to-zero": 0x8040, "downward": 0x2000, "upward": 0x4000, "toward-zero": 0x6000}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--passed", type=Path, help="file of tests that have passed: they are left out, more are added")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that have passed before."""
    before = _passed_before(config)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in before])
    items[:] = [item for item in items if item.nodeid not in before]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Adds the tests that passed now; the workers of pytest-xdist have no summary."""
    file: Path | None = config.getoption("passed")
    if file is not None:
        passed = {report.nodeid for report in terminalreporter.getreports("passed")}
        file.write_text("\n".join(sorted(_passed_before(config) | passed)), encoding="utf-8")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = inspect.signature(pyfuncitem.obj).parameters
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in given}))
    return True


def _passed_before(config: pytest.Config) -> set[str]:
    file: Path | None = config.getoption("passed")
    return set(file.read_text(encoding="utf-8").splitlines()) if file is not None and file.exists() else set()


class _FloatEnvironment(ctypes.Structure):
    """`fenv_t` on x86-64 Linux."""

    _fields_ = (("x87", ctypes.c_uint8 * 28), ("mxcsr", ctypes.c_uint32))


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """Of a run that trains a small recurrent network."""
    return rnn_config(tmp_path)


@pytest.fixture(params=es_core.supported_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set in turn, in use."""
    before = es_core.current_isa()
    es_core.select_isa(request.param)
    yield request.param
    es_core.select_isa(before)


@pytest.fixture(params=_MXCSR_BITS)
def odd_arithmetic(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[None]]:
    """A context in which the thread's floating point arithmetic is not the usual one; code within must leave it so."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        pytest.skip("needs x86-64 Linux: arithmetic is changed through the fenv_t of its libm")
    libm = ctypes.CDLL("libm.so.6")
    bits = _MXCSR_BITS[request.param]

    def environment() -> _FloatEnvironment:
        found = _FloatEnvironment()
        libm.fegetenv(ctypes.byref(found))
        return found

    @contextmanager
    def changed() -> Iterator[None]:
        usual = _arithmetic()
        saved, odd = environment(), environment()
        odd.mxcsr |= bits
        libm.fesetenv(ctypes.byref(odd))
        try:
            is_odd = _arithmetic() != usual
            yield
            is_left_alone = environment().mxcsr & bits == bits
        finally:
            libm.fesetenv(ctypes.byref(saved))
        assert is_odd
        assert is_left_alone

    return changed


def _arithmetic() -> list[float]:
    """Sums that come out differently in every mode."""
    a = np.array([1e-38, 1.0, -1.0, 1.0], dtype=np.float32)
    b = np.array([1e-3, 1e-9, -1e-9, -1e-9], dtype=np.float32)
    return [float(a[0] * b[0]), *(a + b).tolist()]
