"""A package that `pip install .` installed, used in the checkout, whose sources lack the compiled core."""

import os
import re
import shutil
import subprocess
import sys
import venv
from importlib import import_module
from pathlib import Path

import pytest

from fedlearn.system.processes import program
from tests.end_to_end.processes import ROOT, ended_at_exit, free_port, wait_for, watch
from tests.patience import LIMIT_S

STEPS = ("--steps", "2", "--hidden-size", "8", "--population-limit", "64", "--time-per-step", "0.3")
QUIET = ("--host", "127.0.0.1", "--port", "0", "--board", "0", "--plain", "--threads", "1")


def environment_of(folder: Path) -> tuple[Path, Path]:
    """A new environment, which has what this one has installed, and its folder of packages; gives Python and that."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    return folder / "bin" / "python", packages


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the packages as a plain installation leaves them."""
    python, packages = environment_of(tmp_path_factory.mktemp("plain"))
    for name in ("fedlearn", "es_core"):
        shutil.copytree(ROOT / name, packages / name, ignore=shutil.ignore_patterns("__pycache__", "src"))
    shutil.copy(str(import_module("es_core._native").__file__), packages / "es_core")
    return python


def start(python: Path, *arguments: str, folder: Path) -> subprocess.Popen[str]:
    """A process in the checkout, whose own folders are elsewhere."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("FEDLEARN_", "PYTHON"))}
    process = subprocess.Popen(
        [python, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=kept | {"XDG_CONFIG_HOME": str(folder / "config"), "FEDLEARN_RUNS": str(folder / "runs")},
    )
    watch(process, LIMIT_S)
    return process


def run(python: Path, *arguments: str, folder: Path) -> str:
    process = start(python, *arguments, folder=folder)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    return printed


@pytest.mark.parametrize(
    "called", [("server.py",), ("server.py", "--supervise"), ("-m", "fedlearn", "serve")], ids=" ".join
)
def test_server_in_the_checkout_has_volunteers(called: tuple[str, ...], copied: Path, tmp_path: Path) -> None:
    printed = run(copied, *called, *STEPS, *QUIET, "--verbose", folder=tmp_path)
    assert "local-1 joined" in printed
    assert re.search(r"all 2 steps are done", printed)


def test_child_runs_this_program_whatever_lies_in_its_folder(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "fedlearn.py").write_text("print('a script of the same name')")
    command = [str(copied), *program(["--version"])[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("fedlearn ")


def test_volunteers_that_are_launched_in_the_checkout_join(copied: Path, tmp_path: Path) -> None:
    server = start(copied, "server.py", *STEPS, *QUIET, "--volunteers", "0", folder=tmp_path)
    with ended_at_exit(server):
        address, _ = wait_for(server, r"listening on (127\.0\.0\.1:\d+)")
        run(copied, "-m", "fedlearn", "launch", "local", "--count", "1", "--server", address, folder=tmp_path)
        wait_for(server, "all 2 steps are done")


def test_board_that_a_server_starts_in_the_checkout_is_there(copied: Path, tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    server = start(copied, "server.py", *QUIET, "--volunteers", "0", "--board", str(free_port()), folder=tmp_path)
    with ended_at_exit(server):
        wait_for(server, "in a browser: http://")


def test_script_in_the_checkout_is_told_why_the_core_is_not_found(copied: Path, tmp_path: Path) -> None:
    process = start(copied, "-c", "import fedlearn; fedlearn.minimize", folder=tmp_path)
    printed, _ = process.communicate()
    assert "fedlearn.minimize: expected the module es_core._native, which is missing; this is the folder of" in printed


@pytest.mark.long
def test_package_that_pip_built_trains_in_the_checkout(tmp_path: Path) -> None:
    python, packages = environment_of(tmp_path / "venv")
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages))
    subprocess.run([*pip, f"--config-settings=build-dir={tmp_path}/build", str(ROOT)], check=True)
    assert "all 2 steps are done" in run(python, "server.py", *STEPS, *QUIET, folder=tmp_path)
