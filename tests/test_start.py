"""The two scripts beside the package, for a Python that lacks something."""

import os
import subprocess
import sys
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


@pytest.mark.parametrize(("script", "verb"), [("server.py", "serve"), ("client.py", "join")])
def test_installed_package_goes_before_the_sources_beside_the_script(script: str, verb: str, tmp_path: Path) -> None:
    (tmp_path / "fedlearn").mkdir()
    (tmp_path / "fedlearn/__init__.py").touch()
    (tmp_path / "fedlearn/start.py").write_text("def start(*given): print('installed', *given)")
    # Without site packages, where an editable install has a finder of its own.
    assert outcome("-S", str(ROOT / script), PYTHONPATH=str(tmp_path)).stdout == f"installed {verb} {script}\n"
