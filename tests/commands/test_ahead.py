"""A process that has imported what a verb needs before it is told what to do."""

import json
import subprocess
import sys
from pathlib import Path

from fedlearn.commands.ahead import FIRST_USE
from tests.patience import LIMIT_S

WITHOUT_TORCH = f"import sys; sys.modules[{FIRST_USE!r}] = None; from fedlearn.commands import ahead; "
"""What is imported ahead costs seconds, and makes no difference to what is done then."""


def said(verb: str, order: object, *, folder: Path) -> "subprocess.CompletedProcess[str]":
    """What such a process says to an order; None: its input ends without one."""
    line = "" if order is None else json.dumps(order) + "\n"
    command = [sys.executable, "-c", f"{WITHOUT_TORCH}ahead.main([{verb!r}, 'low'])"]
    return subprocess.run(command, cwd=folder, input=line, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_it_does_what_it_is_told_as_if_that_had_been_typed(tmp_path: Path) -> None:
    told = said("join", {"arguments": ["join", "--nonsense"]}, folder=tmp_path)
    assert told.returncode == 2
    assert "--nonsense" in told.stderr


def test_what_it_prints_goes_to_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    told = said("serve", {"arguments": ["serve", "--nonsense"], "log": str(tmp_path / "log")}, folder=tmp_path)
    assert (told.returncode, told.stdout, told.stderr) == (2, "", "")
    first, *others = (tmp_path / "log").read_text().splitlines()
    assert first == "before"
    assert any("--nonsense" in line for line in others)


def test_it_ends_without_a_word_where_nobody_needs_it(tmp_path: Path) -> None:
    told = said("join", None, folder=tmp_path)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
