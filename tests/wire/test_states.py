from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import Update
from fedlearn.wire.messages import (
    Activations,
    Assignment,
    Challenge,
    Credit,
    DataBlock,
    Farewell,
    Goodbye,
    Hello,
    Message,
    Neighbours,
    Ping,
    Pong,
    Proof,
    Ready,
    Result,
    Resync,
    Seat,
    Signature,
    Start,
    Taken,
    Unreachable,
    Welcome,
)
from fedlearn.wire.states import MessageType, State, next_state

ANY_TIME: set[MessageType] = {Ping, Pong, Goodbye, Farewell}

# The table of docs/protocol.md, written down a second time.
LEGAL: dict[State, set[MessageType]] = {
    State.OPENING: {Hello, Farewell},
    State.GREETED: {Challenge, *ANY_TIME},
    State.CHALLENGED: {Proof, Signature, *ANY_TIME},
    State.PROVEN: {Welcome, *ANY_TIME},
    State.WELCOMED: {Seat, DataBlock, Snapshot, Start, *ANY_TIME},
    State.SYNCING: {DataBlock, Update, Ready, Result, Activations, Taken, Unreachable, *ANY_TIME},
    State.ACTIVE: {
        *(DataBlock, Assignment, Activations, Neighbours, Unreachable, Taken, Update, Credit, Resync, Result),
        *ANY_TIME,
    },
    State.RESYNCING: {Seat, DataBlock, Snapshot, Result, Activations, Taken, Unreachable, *ANY_TIME},
    State.SIGNED: {Signature, *ANY_TIME},
    State.LINKED: {Activations, *ANY_TIME},
}

MOVES: dict[tuple[State, MessageType], State] = {
    (State.OPENING, Hello): State.GREETED,
    (State.GREETED, Challenge): State.CHALLENGED,
    (State.CHALLENGED, Proof): State.PROVEN,
    (State.CHALLENGED, Signature): State.SIGNED,
    (State.SIGNED, Signature): State.LINKED,
    (State.PROVEN, Welcome): State.WELCOMED,
    (State.WELCOMED, Snapshot): State.SYNCING,
    (State.WELCOMED, Start): State.SYNCING,
    (State.SYNCING, Ready): State.ACTIVE,
    (State.ACTIVE, Resync): State.RESYNCING,
    (State.RESYNCING, Snapshot): State.SYNCING,
}


def test_each_state_lets_in_its_messages_and_no_other(examples: dict[MessageType, Message]) -> None:
    for state in State:
        legal = {message_type for message_type in examples if next_state(state, message_type) is not None}
        assert legal == LEGAL[state], state


def test_only_the_documented_messages_move_the_state(examples: dict[MessageType, Message]) -> None:
    for state in State:
        for message_type in LEGAL[state]:
            assert next_state(state, message_type) is MOVES.get((state, message_type), state)
    assert len(examples) == 23
