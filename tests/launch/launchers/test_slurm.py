"""The script for sbatch, run by a shell with a stand-in for Python."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedlearn.commands.command_line import _parser
from fedlearn.launch.launchers.slurm import Slurm, job_array

NASTY = "a b'c\"; touch hurt $(touch hurt) `touch hurt` $HOME \\"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that writes its arguments down; the script calls it instead of Python."""
    program = tmp_path / "py thon"
    program.write_text(f"#!{sys.executable}\nimport json, sys\nopen('given', 'w').write(json.dumps(sys.argv[1:]))\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return program


@pytest.mark.usefixtures("stand_in")
def test_script_starts_a_volunteer_with_arguments_as_they_were_given(tmp_path: Path) -> None:
    order = Slurm(count=64, server="fedlearn://h:1/$(touch hurt)", cpus=4, flags=("--task", NASTY))
    variables = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "5", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", job_array(order)], cwd=tmp_path, env=variables, check=False)
    assert done.returncode == 0
    module, *arguments = json.loads((tmp_path / "given").read_text())[2:]
    assert module == "fedlearn"
    assert not (tmp_path / "hurt").exists()
    options, unknown = _parser("fedlearn").parse_known_args(arguments)
    assert unknown == []
    assert (options.name, options.server, options.threads) == ("slurm-77-5", ["fedlearn://h:1/$(touch hurt)"], 4)
    assert (options.task, options.max_memory) == (NASTY, "90%")


def test_script_asks_slurm_for_what_was_ordered() -> None:
    lines = job_array(Slurm(count=64, server="h:1", cpus=4, memory="2GB")).splitlines()
    asked = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert lines[0] == "#!/bin/sh"
    assert asked == [
        "--job-name=fedlearn",
        "--array=1-64",
        "--ntasks=1",
        "--cpus-per-task=4",
        "--mem=1908M",
        "--requeue",
    ]
    assert "--mem" not in job_array(Slurm(count=1, server="h:1"))


def test_token_stands_nowhere_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDLEARN_TOKEN", "0123456789abcdef")
    assert "0123456789abcdef" not in job_array(Slurm(count=1, server="h:1"))
