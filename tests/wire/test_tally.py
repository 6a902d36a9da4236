from fedlearn.wire.encoding.parcel import pack
from fedlearn.wire.messages import DataBlock, Hello, Message, Result
from fedlearn.wire.states import MessageType
from fedlearn.wire.tally import OTHERS, Tally, grown
from tests.wire.pair import CONVERSATION, ConnectionPair

Examples = dict[MessageType, Message]


def frames_of(message: Message) -> int:
    parcel = pack(message)
    return sum(len(parcel.frame(number)) for number in range(parcel.n_frames))


def test_every_byte_of_a_conversation_is_of_one_kind(examples: Examples) -> None:
    pair, tally = ConnectionPair(piece_bytes=1000), Tally()
    pair.server._tally = tally
    for side, message_type, _ in CONVERSATION[:10]:
        pair.say(side, examples[message_type])
    kinds = tally.kinds
    assert set(kinds) == {"weights", "updates", "blocks", "losses", OTHERS}
    assert sum(received for received, _ in kinds.values()) == pair.server.bytes_in
    assert sum(sent for _, sent in kinds.values()) == pair.server.bytes_out
    assert kinds["blocks"] == (0, frames_of(examples[DataBlock]))
    assert kinds["losses"] == (frames_of(examples[Result]), 0)


def test_what_has_grown_between_two_looks_is_given() -> None:
    tally = Tally()
    tag = Hello.__struct_config__.tag
    assert isinstance(tag, int)
    tally.receive(tag, 100)
    before = tally.kinds
    tally.send(tag, 7)
    tally.receive(tag, 1)
    assert grown({}, before) == before == {OTHERS: (100, 0)}
    assert grown(before, tally.kinds) == {OTHERS: (1, 7)}
    assert grown(before, before) == {}
