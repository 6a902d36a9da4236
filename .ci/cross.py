"""Compiles es_core for other systems, with warnings as errors: python .ci/cross.py [TARGET...]

Without a name all are compiled for; but of a target whose system and processor are compiled for in other pairs, only
the files that ask for the system.
Needs cmake, ninja, pybind11 and ziglang from PyPI. Nothing is linked, for the libraries of those systems are not here.
Python's headers are those of this interpreter; Windows has another pyconfig.h.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pybind11

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {
    "aarch64-linux-gnu": ("Linux", "aarch64"),
    "aarch64-macos": ("Darwin", "arm64"),
    "x86_64-macos": ("Darwin", "x86_64"),
    "x86_64-windows-gnu": ("Windows", "AMD64"),
}
"""What zig calls them, and what CMake calls their systems and processors."""

MIXED = ("aarch64-linux-gnu", "x86_64-macos")
"""Targets whose processor is that of another target, and whose system is another's or this machine's."""

SYSTEM = r"#.*\b(__APPLE__|__linux__|_WIN32)\b"
"""How a file asks for it."""

AT_ONCE = 2

FUSING_ISAS = "v3|dot"
FUSED_IN = {"replicated_kernels": False, "activation_kernels": True}
FUSED = r"\t(v?fn?m(?:add|sub|la|ls)[\w.]*)\s"
"""Instructions that round once after a product and a sum; instruction sets with them; and files that may have them."""

PYCONFIG_OF_WINDOWS = """
#include <stddef.h>
#include <stdint.h>
#include <io.h>
#define MS_WINDOWS
#define MS_WIN64
#define NT_THREADS
#define WITH_THREAD
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF_PID_T 8
#define SIZEOF_FLOAT 4
#define SIZEOF_DOUBLE 8
#define ALIGNOF_SIZE_T 8
#define ALIGNOF_MAX_ALIGN_T 16
#define HAVE_DECLSPEC_DLL
#define HAVE_STDDEF_H
#define HAVE_STDINT_H
#define Py_ENABLE_SHARED
#define PLATFORM "win32"
"""


def headers(folder: Path, system: str) -> Path:
    """Python's headers for that system."""
    own = Path(sysconfig.get_path("include"))
    if system != "Windows":
        return own
    copy = folder / "python"
    shutil.copytree(own, copy, dirs_exist_ok=True)
    (copy / "pyconfig.h").write_text(PYCONFIG_OF_WINDOWS, encoding="utf-8")
    return copy


def check_contraction(file: Path, assembly: str) -> None:
    """Raises ValueError where replicated sums and products are fused, and where others, which may be, are not."""
    found = re.findall(FUSED, assembly)
    if bool(found) != FUSED_IN[file.stem]:
        expected = "some" if FUSED_IN[file.stem] else "no"
        raise ValueError(
            f"{file}: expected {expected} fused products, got {found[:3]}; see the flags in CMakeLists.txt"
        )


def compile_for(target: str, *, is_whole: bool = True) -> str:
    """Gives a line about it. Raises CalledProcessError with the compiler's words, ValueError for fused arithmetic."""
    began = time.monotonic()
    folder = ROOT / "build" / "cross" / target
    folder.mkdir(parents=True, exist_ok=True)
    configure(folder, target)
    entries = json.loads((folder / "compile_commands.json").read_text(encoding="utf-8"))
    if not is_whole:
        entries = [entry for entry in entries if re.search(SYSTEM, Path(entry["file"]).read_text(encoding="utf-8"))]
    objects = [os.path.relpath(folder / entry["output"], folder) for entry in entries]
    run(target, tool("ninja"), "-C", str(folder), "-j1", *objects)
    assembly = folder / "kernels.s"
    for entry in entries:
        if re.search(f"FEDLEARN_ISA=({FUSING_ISAS}) ", entry["command"]) and Path(entry["file"]).stem in FUSED_IN:
            command = [word for word in shlex.split(entry["command"]) if word != "-c"]
            run(target, *command, "-S", "-o", str(assembly), ZIG_LEVEL="-O1")
            check_contraction(Path(entry["file"]), assembly.read_text(encoding="utf-8"))
    return f"{target}: {len(objects)} files in {time.monotonic() - began:.0f} s"


def configure(folder: Path, target: str) -> None:
    system, processor = TARGETS[target]
    settings = {
        "CMAKE_SYSTEM_NAME": system,
        "CMAKE_SYSTEM_PROCESSOR": processor,
        "CMAKE_CXX_COMPILER": ROOT / ".ci" / "zig-c++",
        "CMAKE_CXX_COMPILER_WORKS": "ON",
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        "CMAKE_INSTALL_NAME_TOOL": "unused",
        "CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY",
        "CMAKE_MAKE_PROGRAM": tool("ninja"),
        "FEDLEARN_WERROR": "ON",
        "Python_EXECUTABLE": sys.executable,
        "Python_INCLUDE_DIR": headers(folder, system),
        "Python_LIBRARY": "unused",
        "pybind11_DIR": pybind11.get_cmake_dir(),
    }
    defined = [f"-D{name}={value}" for name, value in settings.items()]
    run(target, tool("cmake"), "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *defined)


def run(target: str, *command: str, **environ: str) -> str:
    """What a command prints that compiles for the target."""
    return subprocess.run(
        command,
        env=os.environ
        | {"ZIG_TARGET": target, "PYTHON": sys.executable}
        | {"CCACHE_NAMESPACE": f"{target}{environ.get('ZIG_LEVEL', '')}"}  # for no argument says what it compiles for
        | environ,
        stdin=subprocess.DEVNULL,  # zig would wait for it
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    ).stdout


def tool(name: str) -> str:
    """One that stands beside this interpreter, or on the path."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        sys.exit(f"expected {name}; install it: pip install cmake ninja pybind11 ziglang")
    return found


def main() -> int:
    named = sys.argv[1:]
    targets = named or sorted(TARGETS, key=lambda target: target in MIXED)  # the longest first
    with ThreadPoolExecutor(AT_ONCE) as pool:
        compiled = [pool.submit(compile_for, target, is_whole=bool(named) or target not in MIXED) for target in targets]
        try:
            for each in compiled:
                print(each.result(), flush=True)
        except subprocess.CalledProcessError as error:
            print(error.output, end="", file=sys.stderr)
            return 1
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
