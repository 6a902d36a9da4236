"""Builds of golden.cpp by several compilers, and what they have to print.

Flags are those of CMakeLists.txt, changed as a build's name says.
"""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from tests.patience import LIMIT_S

Printed = Callable[..., dict[str, str]]

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[1]
SOURCES = REPOSITORY / "es_core" / "src"
REPLICATED = SOURCES / "replicated"
KERNELS = REPLICATED / "replicated_kernels.cpp"
FILES = [
    *sorted(set(REPLICATED.glob("*.cpp")) - {KERNELS}),
    *(SOURCES / f"{name}.cpp" for name in ("dispatch", "processor", "threads")),
    FOLDER / "golden.cpp",
]

CMAKE = (REPOSITORY / "CMakeLists.txt").read_text(encoding="utf-8")
ISAS_OF_X86, ISAS_OF_ARM, _ = (names.split() for names in re.findall(r"set\(isas ([^)]*)\)", CMAKE))
"""Instruction sets that are compiled, the best one last."""

BUILDS: dict[str, tuple[str, dict[str, str]]] = {
    "gcc -O0": ("g++", {"-O3": "-O0"}),
    "clang": ("clang++", {}),
    "clang -O0": ("clang++", {"-O3": "-O0"}),
    "gcc with contraction": ("g++", {"-ffp-contract=off": "-ffp-contract=fast"}),
    "aarch64": ("aarch64-linux-gnu-g++", {}),
    "aarch64 -O0": ("aarch64-linux-gnu-g++", {"-O3": "-O0"}),
}
"""Compiler, and which of the project's flags are replaced."""


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """The path of a compiler or an emulator; skips the test where there is none."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{name} is not installed; .ci/run installs it on Debian")
        return path

    return find


@pytest.fixture(scope="session")
def emulator(tool: Callable[[str], str]) -> Callable[[str], list[str]]:
    """The command that runs a program on an emulated x86-64 processor; skips the test where that cannot be."""

    def command(processor: str) -> list[str]:
        if platform.machine() != "x86_64":
            pytest.skip("programs for x86-64 are built on x86-64 only")
        path = tool("qemu-x86_64")
        version = re.search(r"version (\d+)\.(\d+)", run([path, "--version"]))
        if processor == "Haswell" and version is not None and (int(version[1]), int(version[2])) < (7, 2):
            pytest.skip(f"qemu {version[1]}.{version[2]} has no AVX2; 7.2 has")
        return [path, "-cpu", processor]

    return command


@pytest.fixture(scope="session")
def flags() -> dict[str, list[str]]:
    """Lists of flags that CMakeLists.txt sets, by name: `replicated_flags`, `isa_flags_v3` and so on."""
    return {name: values.split() for name, values in re.findall(r"set\((\w*flags\w*) ([^)]*)\)", CMAKE)}


@pytest.fixture(scope="session")
def compile_kernels(tool: Callable[[str], str], flags: dict[str, list[str]]) -> Callable[..., list[Path]]:
    """Compiles files as one, and a kernel once an instruction set, into a folder; gives the objects, kernels first."""

    def compile_all(
        kernel: Path,
        folder: Path,
        *,
        build: str,
        files: list[Path],
        isas: Sequence[str] = (),
        is_encoded_anew: bool = False,
    ) -> list[Path]:
        compiler, changes = BUILDS[build]
        optimizing = flags["replicated_flags" if kernel == KERNELS else "reported_flags"]
        is_arm = compiler.startswith("aarch64") or platform.machine() != "x86_64"
        names = isas or (ISAS_OF_ARM if is_arm else ISAS_OF_X86)
        # Best first: were a symbol weak, the linker would take the copy that older processors cannot run.
        own = {name: [] if is_arm and name == "base" else flags[f"isa_flags_{name}"] for name in reversed(names)}
        assert set(changes) <= set(flags["replicated_flags"])
        cache = shutil.which("ccache")
        common = [
            *([cache] if cache else []),
            tool(compiler),
            "-std=c++20",
            "-Wno-psabi",
            f"-I{SOURCES}",
            *(changes.get(f, f) for f in optimizing),
        ]
        commands = {folder / f"{isa}.o": [*more, f"-DFEDLEARN_ISA={isa}", str(kernel)] for isa, more in own.items()}
        if files:  # as one: most of the time goes into the headers that all of them include
            whole = folder / "whole.cpp"
            whole.write_text("".join(f'#include "{file}"\n' for file in files), encoding="utf-8")
            commands[folder / "whole.o"] = [str(whole)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda out: run([*common, "-c", *commands[out], "-o", str(out)]), commands))
        if is_encoded_anew:
            encode_anew(folder / "v3_vnni.o", [*common, *commands[folder / "v3_vnni.o"]])
        return list(commands)

    return compile_all


@pytest.fixture(scope="session")
def driver(
    tool: Callable[[str], str],
    compile_kernels: Callable[..., list[Path]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], str]:
    """The program of a build, by its name in BUILDS; built at the first call."""

    @cache
    def build(name: str) -> str:
        folder = tmp_path_factory.mktemp("golden")
        if name == "gcc with contraction":  # of v3 alone, which is all that is run
            objects = compile_kernels(KERNELS, folder, build=name, files=[], isas=["v3"])
            objects += [path for path in Path(build("gcc -O0")).parent.glob("*.o") if path.stem != "v3"]
        else:
            objects = compile_kernels(KERNELS, folder, build=name, files=FILES)
        compiler = tool(BUILDS[name][0])
        # An emulator finds no libraries of another architecture.
        how = ["-static"] if compiler.endswith("aarch64-linux-gnu-g++") else []
        run([compiler, *how, "-pthread", *map(str, objects), "-o", str(folder / "golden")])
        return str(folder / "golden")

    return build


@pytest.fixture(scope="session")
def printed() -> Printed:
    """Runs a command and gives the `name: value` lines that it prints; "isa" is the instruction set that it used.

    It chooses that itself unless FEDLEARN_ISA is among the variables given.
    """

    def read(*command: str, **environment: str) -> dict[str, str]:
        output = run([*command], **{"FEDLEARN_ISA": ""} | environment)
        return dict(line.split(": ") for line in output.splitlines())

    return read


@pytest.fixture(scope="session")
def golden() -> dict[str, str]:
    """The digests that every machine has to come to."""
    lines = (FOLDER / "golden.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ") for line in lines if not line.startswith("#"))


@pytest.fixture(scope="session")
def golden_of_driver(golden: dict[str, str]) -> dict[str, str]:
    """Those that golden.cpp prints: all but the journal's."""
    return {name: digest for name, digest in golden.items() if name != "journal"}


def encode_anew(out: Path, command: list[str]) -> None:
    """Makes an object with the instructions of AVX-VNNI as AVX512-VNNI encodes them."""
    assembly = out.with_suffix(".s")
    run([*command, "-S", "-o", str(assembly)])
    text = assembly.read_text(encoding="utf-8")
    assert "{vex} vpdpbusd" in text
    assembly.write_text(text.replace("{vex} vpdpbusd", "vpdpbusd"), encoding="utf-8")
    compiler = command[: command.index("-std=c++20")]
    run([*compiler, "-c", str(assembly), "-o", str(out)])


def run(command: list[str], **environment: str) -> str:
    result = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert result.returncode == 0, f"{' '.join(command)}: exit status {result.returncode}\n{result.stderr}"
    return result.stdout
