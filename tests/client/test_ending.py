"""A process that is not to outlive whoever started it."""

import subprocess
import sys

import pytest

from tests.patience import LIMIT_S

COMPANION = """
import signal, sys, threading
from fedlearn.client.ending import end_with_input
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
end_with_input()
print("ready", flush=True)
threading.Event().wait(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of other systems")
def test_a_companion_is_asked_to_stop_when_its_input_ends() -> None:
    process = subprocess.Popen([sys.executable, "-c", COMPANION], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(b"what it is told says nothing")
        process.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
        process.stdin.close()
        assert process.wait(timeout=LIMIT_S) == 7
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
