"""A relay is given a seat: it holds no part of a model, and says so."""

from fedlearn.coordination.effects import Leave, Reply
from fedlearn.coordination.relay.relay import NO_SEAT, Relay
from fedlearn.coordination.work.worker import Worker
from fedlearn.wire.messages import MAX_REASON_LENGTH, Goodbye, Seat
from tests.identities import ADA, NONCE


def test_a_relay_takes_no_seat_and_names_the_remedy() -> None:
    def serve(*_: object) -> object:
        raise AssertionError("there is nothing to serve")

    relay = Relay(serve)  # type: ignore[arg-type]
    relay.start(Worker(name="relay", threads=1, credentials=ADA), nonce=NONCE)
    effects = relay.received(Seat(1, (2,), 1, 0, "float32", 8, 4, 16, 0), 0.0)
    assert effects == [Reply(Goodbye(NO_SEAT)), Leave(NO_SEAT, is_welcome_back=False, is_refusal=True)]
    assert len(NO_SEAT) <= MAX_REASON_LENGTH
