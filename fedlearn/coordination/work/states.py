"""The states of a worker: a table, as that of a conversation in `fedlearn/wire/states.py`.

The connection checks what may be said when; a worker's state is what it does about it.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

from fedlearn.es.snapshot import Snapshot
from fedlearn.wire.messages import Farewell, Goodbye, Hello, Proof, Ready, Resync, Start

MessageType = type[msgspec.Struct]


class WorkerState(Enum):
    """The state of a worker between its first word and its last."""

    SILENT = "it has said nothing"
    GREETED = "it has said Hello"
    WAITING = "it has proven its identity, and waits for weights"
    SYNCING = "it takes the weights that it was sent"
    READY = "it holds the weights that the server asked for, and works"
    DISMISSED = "it was sent away, and takes the Updates that came before that"
    OVER = "it has parted"


_TRANSITIONS: Mapping[WorkerState, Mapping[MessageType, WorkerState]] = {
    WorkerState.SILENT: {Hello: WorkerState.GREETED},
    WorkerState.GREETED: {Proof: WorkerState.WAITING},
    WorkerState.WAITING: {Snapshot: WorkerState.SYNCING, Start: WorkerState.SYNCING},
    WorkerState.SYNCING: {Ready: WorkerState.READY},
    WorkerState.READY: {Resync: WorkerState.WAITING},
    WorkerState.DISMISSED: {},
    WorkerState.OVER: {},
}

_ALWAYS: Mapping[MessageType, WorkerState] = {Farewell: WorkerState.DISMISSED, Goodbye: WorkerState.OVER}


def state_after(state: WorkerState, said: msgspec.Struct) -> WorkerState:
    """The state of a worker after a message of either side; most change nothing."""
    if state is WorkerState.OVER:
        return state
    return {**_TRANSITIONS[state], **_ALWAYS}.get(type(said), state)
