"""The command and the two scripts beside the package, for a Python that lacks something, or is interrupted at once."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.patience import LIMIT_S

ROOT = Path(__file__).parents[1]
SCRIPTS = ("server.py", "client.py")


def outcome(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=os.environ | environ, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_python_without_the_package_is_told_how_to_install_it(script: str) -> None:
    done = outcome("-S", str(ROOT / script))
    assert done.returncode == 1
    assert done.stderr.startswith(f"{script}: expected fedlearn to be installed for {sys.executable}, ")
    assert done.stderr.endswith(f".venv/bin/pip install -e ., then: .venv/bin/python {script}\n")
    assert "Traceback" not in done.stderr


def the_command(folder: Path) -> list[str]:
    """As an installed script calls it, for a Python that finds modules in this folder first, and fedlearn."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, function = scripts["fedlearn"].partition(":")
    paths = [str(folder), str(ROOT)]
    return ["-c", f"import sys; sys.path[:0] = {paths}; from {module} import {function}; sys.exit({function}())"]


def test_command_that_is_interrupted_while_it_imports_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise KeyboardInterrupt")
    done = outcome(*the_command(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_command_that_lacks_a_package_names_it(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("import one_that_nobody_has")
    done = outcome(*the_command(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        f"fedlearn: expected fedlearn to be installed for {sys.executable}, one_that_nobody_has is missing; "
        f"install it again, in the folder of its sources: {sys.executable} -m pip install .\n"
    )


@pytest.mark.parametrize(("script", "verb"), [("server.py", "serve"), ("client.py", "join")])
def test_installed_package_goes_before_the_sources_beside_the_script(script: str, verb: str, tmp_path: Path) -> None:
    (tmp_path / "fedlearn").mkdir()
    (tmp_path / "fedlearn/__init__.py").touch()
    (tmp_path / "fedlearn/start.py").write_text("def start(*given): print('installed', *given)")
    # Without site packages, where an editable install has a finder of its own.
    assert outcome("-S", str(ROOT / script), PYTHONPATH=str(tmp_path)).stdout == f"installed {verb} {script}\n"
