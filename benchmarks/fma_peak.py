"""The most a processor core can do in float32: independent multiply-adds on its widest vectors, nothing else.

Matrix libraries do not reach half of it on some processors, and a kernel can then be faster than "the peak" that is
measured with them.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

N_ITERATIONS = 4_000_000

_SOURCE = """
#if defined(__AVX512F__)
enum { kLanes = 16 };
#elif defined(__AVX__)
enum { kLanes = 8 };
#else
enum { kLanes = 4 };
#endif
enum { kChains = 12 };  /* hides the latency of two units, and fits into sixteen registers with the operands */
typedef float Floats __attribute__((vector_size(4 * kLanes)));

long multiply_add(long n, float factor, float* sum) {
    Floats chains[kChains], factors, terms;
    for (int i = 0; i < kLanes; ++i) { factors[i] = factor; terms[i] = 1.0f - factor; }
    for (int j = 0; j < kChains; ++j) chains[j] = factors * (float)j;
    for (long i = 0; i < n; ++i) {
#pragma GCC unroll 12
        for (int j = 0; j < kChains; ++j) chains[j] = chains[j] * factors + terms;
    }
    for (int j = 0; j < kChains; ++j) *sum += chains[j][0];
    return 2 * n * kChains * kLanes;
}
"""


def build_fma_loop() -> tuple[Callable[[], object], int] | None:
    """A call that multiplies and adds on one core, and how many operations that is; None without a C compiler."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(_SOURCE)
        command = [*compiler.split(), "-O3", "-march=native", "-shared", "-fPIC", "-o", str(library), str(source)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return None
        multiply_add = ctypes.CDLL(str(library)).multiply_add
    multiply_add.argtypes = [ctypes.c_long, ctypes.c_float, ctypes.POINTER(ctypes.c_float)]
    multiply_add.restype = ctypes.c_long
    total = ctypes.c_float()

    def run() -> int:
        return int(multiply_add(N_ITERATIONS, 0.5, ctypes.byref(total)))

    return run, run()
