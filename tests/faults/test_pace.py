"""Nobody sets anybody's pace: what a volunteer gets done beside others that are late, silent or fickle."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from fedlearn.es.snapshot import Snapshot
from fedlearn.wire.messages import Ready
from tests.end_to_end.processes import ended_at_exit, metrics_of, start
from tests.faults.callers import Caller, serving, volunteer
from tests.faults.link import link_to
from tests.identities import named

Burden = Callable[[Path, str], AbstractContextManager[None]]

MEASURED_S = 2.5
LEAST = 0.4
"""Of what was done before, on a machine that others use as well; it was 0.01 to 0.27 when a step waited for all."""

FICKLE = """
import sys
from fedlearn.coordination.work.worker import Worker
from fedlearn.commands.command_line import main

report, n_steps = Worker._report, 0

def report_two_of_three(self, *given):
    global n_steps
    n_steps += 1
    effects = report(self, *given)
    return [] if n_steps % 3 == 0 else effects

Worker._report = report_two_of_three
sys.exit(main(["join", *sys.argv[1:]]))
"""


@contextmanager
def late(folder: Path, address: str) -> Iterator[None]:
    port = int(re.search(r":(\d+)", address).group(1))  # type: ignore[union-attr]
    with link_to(port, delay_s=0.1) as link, ended_at_exit(volunteer(folder, "--server", f"127.0.0.1:{link.port}")):
        yield


@contextmanager
def fickle(folder: Path, address: str) -> Iterator[None]:
    (folder / "fickle.py").write_text(FICKLE)
    script = str(folder / "fickle.py")
    with ended_at_exit(start(script, "--task", "fit.py:task", "--server", address, folder=folder)):
        yield


@contextmanager
def silent(_: Path, address: str) -> Iterator[None]:
    """Five that follow the run as far as their word goes, and lease without an answer."""
    with ExitStack() as held:
        for number in range(5):
            caller = held.enter_context(Caller(address))
            caller.enter(named(f"silent {number}"))
            while not isinstance(message := caller.hear(), Snapshot):
                assert message is not None
            caller.say(Ready(message.step, message.digest))
            threading.Thread(target=listen, args=(caller,), daemon=True).start()
        yield


def listen(caller: Caller) -> None:
    try:
        while caller.hear() is not None:
            pass
    except OSError:
        return


def members_per_s(folder: Path, until_s: float) -> float:
    """Of the last MEASURED_S before a time."""
    lines = [line for line in metrics_of(folder) if until_s - MEASURED_S <= line["time"] <= until_s]
    return float(sum(line["members"] for line in lines)) / MEASURED_S


@pytest.mark.long  # it measures the machine
@pytest.mark.parametrize("audit", ["0", "0.02"])
@pytest.mark.parametrize(("name", "burden"), [("late", late), ("silent", silent), ("fickle", fickle)])
def test_who_does_not_keep_up_holds_nobody_up(tmp_path: Path, name: str, burden: Burden, audit: str) -> None:
    flags = ["--population-limit", "1024", "--volunteers", "1", "--audit", audit, "--tls", "off"]
    with serving(tmp_path, *flags) as (_, address):
        wait_until_measured(tmp_path)
        before = members_per_s(tmp_path, time.time())
        with burden(tmp_path, address):
            wait_until_measured(tmp_path)
            during = members_per_s(tmp_path, time.time())
    print(f"{name}, audit {audit}: {during:.0f} members/s beside it, {before:.0f} before")
    assert during > LEAST * before


def wait_until_measured(folder: Path) -> None:
    """Until there are metrics of MEASURED_S and a little more: volunteers start meanwhile."""
    began = time.time()
    ends = began + MEASURED_S + 1.5
    path = folder / "trainingRuns/1/metrics.jsonl"
    while time.time() < ends or not path.exists() or len(metrics_of(folder)) < 10:
        threading.Event().wait(0.05)
        assert time.time() < began + 60.0
