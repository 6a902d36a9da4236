"""What stands in deploy/ is understood by those for whom it is written, as far as they are here."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedlearn.commands.command_line import _parser

DEPLOY = Path(__file__).parents[1] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


def arguments_in(path: Path) -> list[list[str]]:
    """Of fedlearn, as a file gives them."""
    text = path.read_text()
    lists = re.findall(r"^(?:CMD|\s*command:) (\[.*\])$", text, re.MULTILINE)
    lines = re.findall(r"^ExecStart=\S*/fedlearn (.*)$", text, re.MULTILINE)
    return [*(json.loads(found) for found in lists), *(line.split() for line in lines)]


@pytest.mark.parametrize("path", [path for path in sorted(DEPLOY.iterdir()) if path.is_file()], ids=lambda p: p.name)
def test_verbs_and_flags_are_those_that_there_are(path: Path) -> None:
    found = arguments_in(path)
    assert found, "nothing of fedlearn is started"
    for arguments in found:
        _, unknown = _parser("fedlearn").parse_known_args(arguments)
        assert unknown == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_is_understood_by_systemd(unit: Path, tmp_path: Path) -> None:
    installed = unit.read_text().replace("%h/.local/share/fedlearn/bin/fedlearn", sys.executable)
    (tmp_path / unit.name).write_text(installed)
    command = ["systemd-analyze", "verify", str(tmp_path / unit.name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []


def test_image_is_not_run_by_root() -> None:
    assert re.search(r"^USER fedlearn$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
