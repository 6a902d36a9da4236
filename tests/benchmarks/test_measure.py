import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import LIMIT_S

ROOT = Path(__file__).parents[2]
LIBRARIES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PROGRAM = f"""
import json, os, sys
from benchmarks.measure import use_processors
use_processors(int(sys.argv[1]), EXTRA="1")
n_processors = len(os.sched_getaffinity(0))
print(json.dumps([n_processors, [os.environ.get(name) for name in {LIBRARIES}], os.environ.get("EXTRA"), sys.argv[1:]]))
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs the affinity of Linux")


def seen(*arguments: str, **variables: str) -> object:
    """What a program sees once it was started on its processors: how many, threads of the libraries, a variable."""
    environ = {name: value for name, value in os.environ.items() if name not in LIBRARIES}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environ | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    return json.loads(done.stdout)


def test_program_starts_again_on_its_processors_with_as_many_threads_in_the_libraries() -> None:
    assert seen("1", "--flag") == [1, ["1"] * 3, "1", ["1", "--flag"]]
    assert seen("1", OMP_NUM_THREADS="1") == [1, ["1"] * 3, "1", ["1"]]


def test_program_that_is_bound_already_or_not_to_be_bound_goes_on_as_it_is() -> None:
    n_processors = len(os.sched_getaffinity(0))
    assert seen("1", **dict.fromkeys(LIBRARIES, "1")) == [n_processors, ["1"] * 3, None, ["1"]]
    assert seen("0") == [n_processors, [None] * 3, None, ["0"]]
