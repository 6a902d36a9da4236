"""What a worker's state follows from."""

import pytest

from fedlearn.coordination.work.states import WorkerState, state_after
from fedlearn.wire.messages import Credit, Farewell, Goodbye, Message, Ready, Resync
from tests.coordination.work.scene import snapshot, start


@pytest.mark.parametrize("weights", [snapshot(4), start(0, 4)])
def test_weights_are_loaded_before_they_are_reported_and_replaced_after(weights: Message) -> None:
    state, path = WorkerState.WAITING, []
    for said in (weights, Ready(4, bytes(8)), Resync("it drifted"), weights):
        state = state_after(state, said)
        path.append(state)
    assert path == [WorkerState.SYNCING, WorkerState.READY, WorkerState.WAITING, WorkerState.SYNCING]


def test_most_messages_change_nothing() -> None:
    assert {state_after(state, Credit(1, 1, 1, 0, 0)) is state for state in WorkerState} == {True}


def test_parting_words_hold_from_any_state_on() -> None:
    living = set(WorkerState) - {WorkerState.OVER}
    assert {state_after(state, Farewell("run_ended", "done")) for state in living} == {WorkerState.DISMISSED}
    assert {state_after(state, Goodbye("bye")) for state in living} == {WorkerState.OVER}
    assert state_after(WorkerState.OVER, Farewell("run_ended", "done")) is WorkerState.OVER
    assert state_after(WorkerState.DISMISSED, snapshot(4)) is WorkerState.DISMISSED
