import pytest

from fedlearn.es.snapshot import Snapshot
from fedlearn.wire.encoding.codec import encode
from fedlearn.wire.encoding.frames import CHUNK_BYTES, FrameParser
from fedlearn.wire.encoding.parcel import Parcel, keep, pack, stream_of
from fedlearn.wire.messages import Activations, DataBlock, Message, Ping


@pytest.mark.parametrize("length", [1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_frames_together_are_the_payload(length: int) -> None:
    payload = bytes(number % 251 for number in range(length))
    parcel = Parcel(DataBlock, payload)
    data = b"".join(parcel.frame(number) for number in range(parcel.n_frames))
    assert b"".join(frame.payload for frame in FrameParser().feed(data)) == payload
    assert parcel.length_bytes == length


def test_every_message_can_be_packed(message: Message) -> None:
    parcel = pack(message)
    (first, *_) = FrameParser().feed(parcel.frame(0))
    assert (first.message_type, first.stream) == (message.__struct_config__.tag, stream_of(type(message)))
    assert parcel.length_bytes == len(encode(message))
    assert parcel.has_weights == isinstance(message, Snapshot)


def test_frame_of_a_small_message_is_made_once() -> None:
    parcel = pack(Ping())
    assert parcel.frame(0) is parcel.frame(0)


def test_what_is_kept_of_activations_is_packed_once_and_is_no_part_of_them() -> None:
    said = Activations(1, 0, 2, bytes(8), b"values")
    parcel = pack(said)
    keep(said, parcel)
    assert said == Activations(1, 0, 2, bytes(8), b"values")
    assert encode(said) == encode(Activations(1, 0, 2, bytes(8), b"values"))
    assert pack(said) is parcel
    assert pack(said) is not parcel, "whoever keeps the message does not keep its bytes twice"
