"""Losses hardly differ between instruction sets, those included that this processor lacks: they are emulated.

AVX-VNNI is no emulator's yet. Its dot product is that of AVX512-VNNI in another encoding: where a processor has only
that, the kernels' assembly is encoded anew.
"""

import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import es_core
from tests.patience import LIMIT_S

SOURCES = Path(__file__).parents[2] / "es_core" / "src"
REPLICATED, RNN = SOURCES / "replicated/replicated_kernels.cpp", SOURCES / "rnn/rnn_kernels.cpp"
FILES = [
    *sorted(set(SOURCES.glob("r*/*.cpp")) - {REPLICATED, RNN}),
    SOURCES / "threads.cpp",
    Path(__file__).with_name("losses.cpp"),
]
PROCESSOR = Path("/proc/cpuinfo")

Losses = dict[str, NDArray[np.float64]]
Compile = Callable[..., list[Path]]
Tool = Callable[[str], str]


@pytest.fixture(scope="module")
def losses(tool: Tool, compile_kernels: Compile, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Losses]:
    """What the driver prints, by a build's compiler and an instruction set."""

    @cache
    def build(compiler: str, is_encoded_anew: bool) -> str:
        name, dots = ("gcc -O0", "v3_vnni") if compiler == "g++" else ("aarch64 -O0", "dot")
        objects = []
        for kernel, files in ((REPLICATED, FILES), (RNN, [])):
            folder = tmp_path_factory.mktemp("losses")
            isas = ["base", dots]
            objects += compile_kernels(
                kernel, folder, build=name, files=files, isas=isas, is_encoded_anew=is_encoded_anew
            )
        program = str(objects[0].with_name("losses"))
        command = [tool(compiler), "-static", "-pthread", *map(str, objects), "-o", program]
        subprocess.run(command, check=True, timeout=LIMIT_S)
        return program

    def read(compiler: str, isa: str, *, is_encoded_anew: bool = False) -> Losses:
        emulator = [tool("qemu-aarch64")] if "aarch64" in compiler else []
        command = [*emulator, build(compiler, is_encoded_anew), isa]
        lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout.splitlines()
        return {name: np.array(numbers.split(), dtype=float) for name, _, numbers in (x.partition(":") for x in lines)}

    return read


def check(found: Losses, reference: Losses) -> None:
    np.testing.assert_allclose(found["float32"], found["naive"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(found["float32"], reference["float32"], rtol=0, atol=1e-5)
    # A state on the border of two bytes may fall either way.
    np.testing.assert_allclose(found["int8"], reference["int8"], rtol=0, atol=0.01)
    assert 1e-5 < np.abs(found["int8"] - found["float32"]).max() < 0.02
    assert found["float32"].std() > 0.01


def test_dot_products_of_arm_come_to_the_same_losses(losses: Callable[..., Losses]) -> None:
    found, base = (losses("aarch64-linux-gnu-g++", isa) for isa in ("dots", "base"))
    check(found, base)
    check(base, base)


@pytest.mark.slow
def test_dot_products_of_avx_come_to_the_same_losses(losses: Callable[..., Losses]) -> None:
    flags = set(re.findall(r"\w+", PROCESSOR.read_text(encoding="utf-8"))) if PROCESSOR.exists() else set()
    has_other_encoding = {"avx512_vnni", "avx512vl"} <= flags
    if "v3-vnni" not in es_core.supported_isas() and not has_other_encoding:
        pytest.skip("this processor has neither AVX-VNNI nor AVX512-VNNI")
    is_encoded_anew = "v3-vnni" not in es_core.supported_isas()
    found, base = (losses("g++", isa, is_encoded_anew=is_encoded_anew) for isa in ("dots", "base"))
    check(found, base)
