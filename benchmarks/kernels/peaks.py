"""The most a processor core can do: independent multiply-adds or int8 dot products on its widest vectors, nothing else.

Matrix libraries do not reach half of it on some processors, and a kernel can then be faster than "the peak" that is
measured with them.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

N_ITERATIONS = 4_000_000

FMA = "multiply-adds"
DOT = "int8 dot products"

_SOURCE = """
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__AVX512F__)
enum { kLanes = 16 };
#elif defined(__AVX__)
enum { kLanes = 8 };
#else
enum { kLanes = 4 };
#endif
enum { kChains = 12 };  /* hides the latency of two units, and fits into sixteen registers with the operands */
typedef float Floats __attribute__((vector_size(4 * kLanes)));

long multiply_add(long n, float* sum) {
    const Floats factors = 0.5f - (Floats){0}, terms = factors;
    Floats chains[kChains];
    for (int j = 0; j < kChains; ++j) chains[j] = factors * (float)j;
    for (long i = 0; i < n; ++i) {
#pragma GCC unroll 12
        for (int j = 0; j < kChains; ++j) chains[j] = chains[j] * factors + terms;
    }
    for (int j = 0; j < kChains; ++j) *sum += chains[j][0];
    return 2 * n * kChains * kLanes;
}

/* Operations of n rounds of int8 dot products with 32-bit sums; 0 where the processor has none. */
long dot_product(long n, float* sum) {
#if defined(__AVX512VNNI__)
    __m512i chains[kChains], left = _mm512_set1_epi8(1), right = _mm512_set1_epi8(2);
    asm volatile("" : "+v"(left), "+v"(right));  /* two registers, as in a product */
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) chains[j] = _mm512_set1_epi32(j);
    for (long i = 0; i < n; ++i) {
#pragma GCC unroll 12
        for (int j = 0; j < kChains; ++j) {
            chains[j] = _mm512_dpbusd_epi32(chains[j], left, right);
            asm volatile("" : "+v"(chains[j]));  /* a sum of constants would be worked out beforehand */
        }
    }
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) *sum += (float)_mm512_cvtsi512_si32(chains[j]);
    return 2 * n * kChains * 64;
#else
    (void)n; (void)sum;
    return 0;
#endif
}
"""

Loop = tuple[Callable[[], object], int]

ARCHITECTURES = {"v4-vnni": "native", "v4": "x86-64-v4", "v3-vnni": "native", "v3": "x86-64-v3", "base": "x86-64"}
"""What a compiler calls our instruction sets on x86-64."""


def build_loops(isa: str | None = None) -> dict[str, Loop]:
    """Calls that keep one core busy, by name, and how many operations each is; none without a C compiler.

    For all that this processor has, unless told to stay within one of our instruction sets.
    """
    architecture = ARCHITECTURES.get(isa, "native") if isa is not None else "native"
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loops.c"), Path(folder, "loops.so")
        source.write_text(_SOURCE)
        command = [
            *compiler.split(),
            "-O3",
            f"-march={architecture}",
            "-shared",
            "-fPIC",
            "-o",
            str(library),
            str(source),
        ]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return {}
        functions = ctypes.CDLL(str(library))
    loops: dict[str, Loop] = {}
    for name, function in ((FMA, functions.multiply_add), (DOT, functions.dot_product)):
        function.argtypes = [ctypes.c_long, ctypes.POINTER(ctypes.c_float)]
        function.restype = ctypes.c_long
        call = partial(function, N_ITERATIONS, ctypes.byref(ctypes.c_float()))
        if operations := int(call()):
            loops[name] = call, operations
    return loops
