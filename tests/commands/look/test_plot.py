import argparse
from pathlib import Path

import pytest

from fedlearn.commands.look.plot import plot_command
from fedlearn.runs.run import Run


def test_runs_are_drawn_once_each(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="draws with the plot extra")
    path = tmp_path / "out.svg"
    options = argparse.Namespace(run=["1", "latest"], runs=run.config.run.runs, to=str(path), over="seconds")
    assert plot_command(options) == 0
    assert capsys.readouterr().out == f"{path}: run 1\n"
    assert path.read_bytes().startswith(b"<?xml")
