"""What may be said when: one table, which both sides follow.

A state is where the conversation stands as *this* side has seen it. Messages cross on the way, so the table accepts a
message wherever its sender could not yet know better: a Result after a Resync, for instance.

Source: the design of h11 (https://h11.readthedocs.io), where a protocol is a table of states as well.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

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

MessageType = type[msgspec.Struct]


class State(Enum):
    """The state of a conversation."""

    OPENING = "nothing was said"
    GREETED = "the client said Hello"
    CHALLENGED = "the server said Challenge"
    PROVEN = "the client said Proof"
    WELCOMED = "the server said Welcome"
    SYNCING = "the server sent the weights"
    ACTIVE = "the client is Ready"
    RESYNCING = "the server said Resync"
    SIGNED = "the next seat has signed"
    LINKED = "both seats have signed"

    # Enum's own hash is a function in Python, called for every message; members are unique, so identity serves.
    __hash__ = object.__hash__


_TRANSITIONS: Mapping[State, Mapping[MessageType, State]] = {
    # A server that is full, or cannot read the Hello, says so at once.
    State.OPENING: {Hello: State.GREETED, Farewell: State.OPENING},
    State.GREETED: {Challenge: State.CHALLENGED},
    State.CHALLENGED: {Proof: State.PROVEN, Signature: State.SIGNED},
    State.PROVEN: {Welcome: State.WELCOMED},
    State.WELCOMED: {
        Seat: State.WELCOMED,
        DataBlock: State.WELCOMED,
        Snapshot: State.SYNCING,
        Start: State.SYNCING,
    },
    State.SYNCING: {
        DataBlock: State.SYNCING,
        Update: State.SYNCING,
        Result: State.SYNCING,
        Activations: State.SYNCING,
        Taken: State.SYNCING,
        Unreachable: State.SYNCING,
        Ready: State.ACTIVE,
    },
    State.ACTIVE: {
        DataBlock: State.ACTIVE,
        Assignment: State.ACTIVE,
        Credit: State.ACTIVE,
        Update: State.ACTIVE,
        Result: State.ACTIVE,
        Activations: State.ACTIVE,
        Neighbours: State.ACTIVE,
        Unreachable: State.ACTIVE,
        Taken: State.ACTIVE,
        Resync: State.RESYNCING,
    },
    State.RESYNCING: {
        Seat: State.RESYNCING,
        DataBlock: State.RESYNCING,
        Result: State.RESYNCING,
        Activations: State.RESYNCING,
        Taken: State.RESYNCING,
        Unreachable: State.RESYNCING,
        Snapshot: State.SYNCING,
    },
    State.SIGNED: {Signature: State.LINKED},
    State.LINKED: {Activations: State.LINKED},
}

_AFTER_HELLO: frozenset[MessageType] = frozenset([Ping, Pong, Goodbye, Farewell])


def next_state(state: State, message_type: MessageType) -> State | None:
    """The state after this message, or None where the message is illegal."""
    if message_type in _AFTER_HELLO and state is not State.OPENING:
        return state
    return _TRANSITIONS[state].get(message_type)
