"""What can be checked here of wheels and workflows, which run elsewhere."""

import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[1]
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
WHEELS = PROJECT["tool"]["cibuildwheel"]


def jobs_of(path: Path) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "permissions", "jobs"} <= set(workflow)
    jobs: dict[str, Any] = workflow["jobs"]
    return jobs


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_say_where_and_what_and_name_files_that_exist(path: Path) -> None:
    for job in jobs_of(path).values():
        assert "runs-on" in job
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            for name in re.findall(r"(?<!\S)(?:tests|\.ci)/\S+", step.get("run", "")):
                assert (REPOSITORY / name).exists(), name


def test_wheels_are_built_for_every_system() -> None:
    jobs = jobs_of(REPOSITORY / ".github/workflows/wheels.yml")
    runners = jobs["wheels"]["strategy"]["matrix"]["runner"]
    assert [name.split("-")[0] for name in runners] == ["ubuntu", "ubuntu", "macos", "windows"]
    pytest.importorskip("cibuildwheel")
    for system, tags in {
        "linux": ["manylinux_x86_64"],
        "macos": ["macosx_x86_64", "macosx_arm64"],
        "windows": ["win_amd64"],
    }.items():
        command = [sys.executable, "-m", "cibuildwheel", "--platform", system, "--print-build-identifiers"]
        archs = ["--archs", "x86_64"] if system == "linux" else []
        done = subprocess.run([*command, *archs], cwd=REPOSITORY, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [f"cp3{minor}-{tag}" for minor in (11, 12, 13) for tag in tags]


def test_every_wheel_is_of_a_python_that_the_project_takes() -> None:
    minors = [int(name.removeprefix("cp3").removesuffix("-*")) for name in WHEELS["build"]]
    assert PROJECT["project"]["requires-python"] == f">=3.{min(minors)}"


def test_command_that_tries_a_wheel_passes_here(tmp_path: Path) -> None:
    program, face = (shlex.split(command) for command in WHEELS["test-command"])
    assert (program[0], face) == ("python", ["fedlearn", "join", "--help"])
    path = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); "
    done = subprocess.run(
        [sys.executable, "-c", path + program[2]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "base" in done.stdout, done.stderr


def test_ci_types_the_commands_that_readme_shows() -> None:
    readme = runpy.run_path(str(REPOSITORY / ".ci" / "readme.py"))
    start, sample = readme["commands"]("Start")[:2]
    (test,) = readme["commands"]("Tests")
    made = "python3 -m venv .venv && .venv/bin/pip install -e "
    assert (start, test) == (
        f"{made}'.[board]' && .venv/bin/python server.py",
        f"{made}'.[test,board]' && .venv/bin/pytest",
    )
    assert sample.startswith(".venv/bin/fedlearn sample latest --prompt ")
    line = "step   575  2.862 bits/character  1 volunteer  4.9M trial-tokens/s"
    assert readme["LEARNS"].match(line).group(1) == "2.862"
