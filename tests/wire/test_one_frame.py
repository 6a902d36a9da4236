import pytest

from fedlearn.wire import limits
from fedlearn.wire.connection import Connection
from fedlearn.wire.encoding.parcel import Parcel
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import Challenge
from fedlearn.wire.states import State


def test_a_message_of_one_frame_is_held_to_the_limit_of_its_type() -> None:
    client = Connection("client", now=0.0)
    client.state = State.GREETED
    with pytest.raises(RemoteProtocolError, match="Challenge: expected at most 4096 bytes, got more"):
        client.receive_data(Parcel(Challenge, bytes(limits.MAX_SMALL_BYTES + 1)).frame(0), 0.0)
