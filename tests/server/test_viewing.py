import os
import time

import msgspec

from fedlearn.coordination.status import RunStatus, StepStatus
from fedlearn.server.viewing import INTERVAL_S, View
from tests.steps import step_metrics

STATUS = RunStatus(
    run="7",
    state="running",
    step=4,
    steps=0,
    run_left_s=None,
    members_per_s=5.0,
    open_step=StepStatus(1.0, 8, 64),
    volunteers=(),
)
METRICS = step_metrics(3, variance_left=0.25)


def test_what_the_server_knows_completes_what_the_coordinator_does() -> None:
    view = View("tokens")
    before = time.time()
    view.completed(STATUS, (1000, 5000), now=10.0)
    view.on_step(METRICS)
    view.on_examined(3, {"accuracy": 0.5}, "It was")
    view.on_examined(4, {"accuracy": 0.75}, "")
    shown = view.completed(STATUS, (1600, 9000), now=12.0)
    assert before <= shown.time <= time.time()
    assert shown == msgspec.structs.replace(
        STATUS,
        pid=os.getpid(),
        time=shown.time,
        unit="tokens",
        loss=2.5,
        shown={"bits_per_character": 3.6},
        figures={"variance_left": 0.25},
        work_per_s=1000.0,
        bytes_in_per_s=300.0,
        bytes_out_per_s=2000.0,
        validation={"accuracy": 0.75},
        sample="It was",
    )


def test_run_that_ended_says_why_and_does_nothing_any_more() -> None:
    view = View("tokens")
    view.on_step(METRICS)
    shown = view.completed(STATUS, (0, 0), now=10.0, ended="all 4 steps are done")
    assert (shown.state, shown.reason, shown.open_step) == ("ended", "all 4 steps are done", None)
    assert (shown.members_per_s, shown.work_per_s, shown.loss) == (0.0, 0.0, 2.5)


def test_a_status_is_due_once_an_interval() -> None:
    view = View("tokens")
    times = [50.0, 50.0 + INTERVAL_S - 0.01, 50.0 + INTERVAL_S, 50.0 + 2 * INTERVAL_S - 0.01]
    assert [view.is_due(now) for now in times] == [True, False, True, False]
