"""Servers, relays and volunteers as processes of this machine, and the processor time that they have used."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread


@contextmanager
def process(*arguments: str, folder: Path, listens: bool = True) -> Iterator[tuple[int, int]]:
    """`fedlearn` with these arguments until the end of the block: its process id, and the port on which it listens.

    The port is 0 where it is not expected to listen.

    Raises:
        RuntimeError: it ends before it listens.
    """
    environ = os.environ | {"XDG_CONFIG_HOME": str(folder / "config"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "fedlearn", *arguments]
    made = subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert made.stdout is not None
    said, port = "", 0
    try:
        while listens and not port:
            line = made.stdout.readline()
            if not line:
                raise RuntimeError(f"{arguments[0]}: expected a port, got: {said}")
            said += line
            found = re.search(r"listening on \S+:(\d+)", line)
            port = int(found.group(1)) if found else 0
        Thread(target=made.stdout.read, daemon=True).start()
        yield made.pid, port
    finally:
        made.terminate()
        made.wait()


def processor_s(pid: int) -> float:
    """Processor time of a process by Linux's account, which counts in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
