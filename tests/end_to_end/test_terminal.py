"""Real processes on a real pseudo terminal."""

import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from fedlearn.system.invocation import invocation
from tests.end_to_end.processes import ROOT, ended_at_exit
from tests.patience import LIMIT_S
from tests.run_folders import write_text
from tests.terminal.emulator import Emulator

FLAGS = ["--data", "corpus.txt", "--hidden-size", "16", "--context", "8", "--volunteers", "1", "--port", "0"]
SHORT = ["--steps", "12", "--time-per-step", "0.2", "--population-limit", "512", "--sample-time", "1"]


def seen(*command: str, folder: Path, columns: int) -> Emulator:
    """What a command leaves on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("FEDLEARN_", "COLUMNS", "LINES"))}
    environ |= {"TERM": "xterm-256color", "XDG_CONFIG_HOME": str(folder / "config")}
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, *command], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, text=True
    )
    os.close(theirs)
    written = b""
    with ended_at_exit(process), open(ours, "rb", buffering=0) as file:
        while True:
            try:
                written += file.read(65536)
            except OSError:  # nobody has the other end any more
                break
        assert process.wait(LIMIT_S) == 0, written.decode(errors="replace")
    screen = Emulator(columns=10_000)  # a command that is longer than a line is the terminal's to wrap
    screen.write(written.decode())
    return screen


@pytest.mark.parametrize("columns", [80, 200])
def test_a_server_leaves_lines_alone_and_says_what_to_try_next(tmp_path: Path, columns: int) -> None:
    write_text(tmp_path / "corpus.txt")
    screen = seen(str(ROOT / "server.py"), *FLAGS, *SHORT, folder=tmp_path, columns=columns)
    written, lines = screen.getvalue(), screen.lines
    print(f"{len(written)} characters for {len(lines)} lines that stay")
    assert screen.has_cursor
    assert "\r\x1b[2K" in written  # a bar was drawn again
    assert not any("━" in line for line in lines)  # and went
    assert any(line.startswith("step    11") for line in lines)
    ended = lines.index("all 12 steps are done; step 12 is saved; go on with:")
    assert lines[ended + 1].endswith(
        f"{invocation('serve').split('/')[-1]} --resume trainingRuns/1 --port 0 --steps 24"
    )
    assert lines[ended + 2].startswith("at step 12: validation ")
    (number,) = [number for number, line in enumerate(lines) if line == "try next:"]
    following = [line.split() for line in lines[number + 1 :]]
    assert [words[-2:] for words in following] == [["sample", "1"], ["eval", "1"]]
    # They work where they are printed.
    program = shutil.which(following[0][0])
    assert program is not None
    written_text = seen(program, *following[0][1:], "--length", "20", folder=tmp_path, columns=columns)
    assert written_text.lines[0] == "run 1, step 12"
