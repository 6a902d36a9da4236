"""An object that is compiled for one instruction set gives the linker nothing but its table of kernels.

Were one of its functions weak, as inline functions of a header are, the linker would keep one copy of several, and
perhaps that which an older processor cannot run. Without optimization nothing is hidden by inlining.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "es_core" / "src"
NO_CODE = "DW.ref.__gxx_personality_v0"
"""A pointer to C++'s own routine, the same whatever file it comes from, that GCC adds to some functions with -O0."""
LEAK = "#include <cmath>\nfloat f(float x) { return std::log(x); }\n"


@pytest.fixture
def exported(
    compile_kernels: Callable[..., list[Path]],
    tool: Callable[[str], str],
    tmp_path: Path,
) -> Callable[[Path], dict[str, set[str]]]:
    """Names that the objects of a kernel define for others, by instruction set."""

    def names(kernel: Path) -> dict[str, set[str]]:
        found = {}
        for path in compile_kernels(kernel, tmp_path, build="gcc -O0", files=[]):
            command = [tool("nm"), "-C", "--extern-only", "--defined-only", "--format=posix", str(path)]
            lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
            found[path.stem] = {line.rsplit(maxsplit=3)[0] for line in lines} - {NO_CODE}
        return found

    return names


@pytest.mark.parametrize("kernel", sorted(SOURCES.rglob("*_kernels.cpp")), ids=lambda path: path.stem)
def test_kernels_export_nothing_but_their_table(kernel: Path, exported: Callable[[Path], dict[str, set[str]]]) -> None:
    for isa, names in exported(kernel).items():
        assert names in [{f"fedlearn::{room}_{isa}"} for room in ("replicated", "rnn", "activations")], isa


def test_a_weak_function_is_seen(tmp_path: Path, exported: Callable[[Path], dict[str, set[str]]]) -> None:
    kernel = tmp_path / "leaking_kernels.cpp"
    kernel.write_text(LEAK, encoding="utf-8")
    assert all("std::log(float)" in names for names in exported(kernel).values())
