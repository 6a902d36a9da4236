import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import LIMIT_S

FOLDER = Path(__file__).parent
SOURCES = FOLDER.parents[1] / "es_core" / "src"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What threads.cpp prints."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    program = str(tmp_path_factory.mktemp("threads") / "threads")
    files = [str(FOLDER / "threads.cpp"), str(SOURCES / "threads.cpp")]
    subprocess.run(
        [compiler, "-std=c++20", f"-I{SOURCES}", "-pthread", *files, "-o", program], check=True, timeout=LIMIT_S
    )
    result = subprocess.run([program], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    return dict(line.split(": ") for line in result.stdout.splitlines())


def test_every_item_is_done_once(printed: dict[str, str]) -> None:
    assert printed["done once"] == "1000"


def test_an_exception_of_any_thread_reaches_the_caller(printed: dict[str, str]) -> None:
    assert printed["caught from the caller's thread"] == "thread 0"
    assert printed["caught from another thread"] == "thread 1"


def test_a_failure_ends_the_work_of_all_threads(printed: dict[str, str]) -> None:
    assert printed["ends after a failure"] == "1"


def test_threads_are_numbered_from_zero(printed: dict[str, str]) -> None:
    assert printed["threads are numbered"] == "1"
