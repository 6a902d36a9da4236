import signal
import subprocess
import sys

import pytest

from fedlearn.system.children import (
    AT_ONCE_S,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MOST_AT_ONCE,
    SOUND_S,
    Child,
    Death,
    Restarts,
    stop_processes,
)


def test_pauses_double_up_to_a_minute() -> None:
    restarts = Restarts()
    assert [restarts.died(AT_ONCE_S) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert LONGEST_PAUSE_S == 60


def test_process_that_was_sound_is_back_soon() -> None:
    restarts = Restarts()
    assert [restarts.died(lived_s) for lived_s in (20.0, 20.0, SOUND_S, 20.0)] == [1, 2, 1, 2]


def test_process_that_dies_at_once_again_and_again_is_given_up() -> None:
    restarts = Restarts()
    assert [restarts.died(AT_ONCE_S - 0.1) for _ in range(MOST_AT_ONCE)] == [1, 2, 4, 8, None]


@pytest.mark.parametrize("lived_s", [AT_ONCE_S, SOUND_S])
def test_deaths_at_once_count_in_a_row_only(lived_s: float) -> None:
    restarts = Restarts()
    for _ in range(3):
        for _ in range(MOST_AT_ONCE - 1):
            assert restarts.died(0.0) is not None
        assert restarts.died(lived_s) is not None


def started(program: str) -> "subprocess.Popen[bytes]":
    """A process that has come to the end of what it says first."""
    process = subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
    return process


def test_a_child_is_started_when_it_is_due_and_its_death_is_told_once() -> None:
    now, processes = [0.0], []

    def start() -> "subprocess.Popen[bytes]":
        processes.append(started("raise SystemExit(3)"))
        processes[-1].wait()
        return processes[-1]

    child = Child("c", start, clock=lambda: now[0])
    assert (child.look(), len(processes)) == (None, 1)
    assert child.look() == Death(3, FIRST_PAUSE_S)
    now[0] = FIRST_PAUSE_S - 0.01
    assert (child.look(), child.process, len(processes)) == (None, None, 1)
    now[0] = FIRST_PAUSE_S
    assert (child.look(), len(processes)) == (None, 2)
    assert child.process is processes[1]


def test_a_child_that_is_given_up_is_never_due() -> None:
    now = [0.0]

    def start() -> "subprocess.Popen[bytes]":
        process = started("raise SystemExit(3)")
        process.wait()
        return process

    child = Child("c", start, clock=lambda: now[0])
    deaths = []
    for _ in range(3 * MOST_AT_ONCE):
        deaths.append(child.look())
        now[0] += LONGEST_PAUSE_S if child.process is None else 0.0
    assert [death.pause_s for death in deaths if death] == [1, 2, 4, 8, None]
    assert child.process is None


def test_processes_are_asked_to_end_and_killed_where_they_do_not() -> None:
    obeys = started("import time; print('on', flush=True); time.sleep(600)")
    defies = started("import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(600)")
    stop_processes([obeys, None, defies], patience_s=0.2)
    assert (obeys.returncode, defies.returncode) == (-signal.SIGTERM, -signal.SIGKILL)


def test_processes_that_were_told_are_not_asked_again() -> None:
    process = started("import time; print('on', flush=True); time.sleep(600)")
    stop_processes([process], patience_s=0.0, are_told=True)
    assert process.returncode == -signal.SIGKILL
