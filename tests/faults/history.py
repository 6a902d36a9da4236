"""What a server printed and wrote, checked when it has ended."""

import re
import subprocess
import threading
from pathlib import Path

from tests.end_to_end.processes import fedlearn, metrics_of, output_of

ATTACKERS = ("liar", "Ada", "nuisance")
"""Beginnings of the names of volunteers that are not honest; a `Caller` is Ada where it says nothing else."""


def drained(server: "subprocess.Popen[str]", said: list[str]) -> threading.Thread:
    """Reads what the server prints, so that it never waits for that."""
    reading = threading.Thread(target=lambda: said.extend(output_of(server)), daemon=True)
    reading.start()
    return reading


def check_history(folder: Path, said: list[str]) -> None:
    """That no step was lost, no replica drifted, nobody honest was sent away, and nobody saw a traceback.

    Whoever attacks has a name that begins as one of ATTACKERS.
    """
    (folder / "server.out").write_text("".join(said))
    for path in folder.glob("*.out"):
        assert not re.search(rf"Traceback|^(?!{'|'.join(ATTACKERS)}).* drifted", path.read_text(), re.MULTILINE), path
    sent_away = [line for line in said if "was sent away" in line]
    print(f"{len(sent_away)} liars sent away")
    assert [line for line in sent_away if not line.startswith(ATTACKERS)] == []
    assert "equal to" in fedlearn("replay", "1", folder=folder)
    assert "all files are complete and belong together" in fedlearn("check", "1", folder=folder)
    steps = [line["step"] for line in metrics_of(folder)]
    # A killed server may have taken a step whose figures it had not yet written.
    before_kills = {int(number) - 1 for number in re.findall(r", from step (\d+)$", "".join(said), re.MULTILINE)}
    assert steps == [number for number in range(steps[-1] + 1) if number in steps or number not in before_kills]
