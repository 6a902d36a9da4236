"""A machine that computes something else than this version, as real processes."""

import subprocess
import sys
from pathlib import Path

from tests.end_to_end.processes import ROOT, output_of
from tests.faults.callers import serving
from tests.faults.measures import until_more
from tests.patience import LIMIT_S

ALTERED = """
import sys
import es_core

honest = es_core.estimate_gradient

def altered(*arguments, **named):
    estimate = honest(*arguments, **named)
    estimate[0] += 1
    return estimate

es_core.estimate_gradient = altered

from fedlearn.commands.command_line import main

main(sys.argv[1:])
"""


def run_altered(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "altered.py").write_text(ALTERED)
    return subprocess.run(
        [sys.executable, str(folder / "altered.py"), *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "XDG_CONFIG_HOME": str(folder / "config")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_volunteer_whose_kernel_is_altered_leaves_before_it_joins(tmp_path: Path) -> None:
    with serving(tmp_path, "--volunteers", "1") as (server, line):
        done = run_altered(tmp_path, "join", line, "--name", "Eve")
        until_more(tmp_path, 2)
        server.terminate()
        said = output_of(server).read()
    print(done.stderr)
    assert done.returncode == 1
    assert done.stderr.startswith("fedlearn: golden trial: step: expected digest 76b95603a3e728a1, got ")
    assert "install fedlearn anew" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "Eve" not in said


def test_server_whose_kernel_is_altered_makes_no_run(tmp_path: Path) -> None:
    done = run_altered(tmp_path, "serve", "--port", "0", "--runs", str(tmp_path / "runs"))
    assert done.returncode == 1
    assert "golden trial: step: expected digest" in done.stderr
    assert not (tmp_path / "runs").exists()
