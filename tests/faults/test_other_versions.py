from pathlib import Path

import msgspec

from fedlearn.wire.encoding.frames import headers
from fedlearn.wire.encoding.parcel import pack
from fedlearn.wire.messages import PROTOCOL_VERSION, Farewell, Hello
from tests.faults.callers import Caller, serving


def test_client_of_another_version_is_told_what_to_do(tmp_path: Path) -> None:
    hello = msgspec.msgpack.encode([1, PROTOCOL_VERSION + 1, b"another name", {"with": "more"}])
    (header,) = headers(hello, message_type=1, stream=0)
    other_frame = bytearray(pack(Hello(PROTOCOL_VERSION, "Eve", 1)).frame(0))
    other_frame[2] = 2
    heard = []
    with serving(tmp_path, "--volunteers", "0") as (_, address):
        for data in (header + hello, bytes(other_frame), pack(Hello(PROTOCOL_VERSION + 1, "Eve", 1)).frame(0)):
            with Caller(address) as eve:
                eve.connection.send(Hello(PROTOCOL_VERSION, "Eve", 1))
                eve.send(data)
                farewell = eve.until(Farewell)
                assert isinstance(farewell, Farewell)
                assert farewell.kind == "refused"
                heard.append(farewell.reason)
    print(heard)
    versions = f"protocol version: expected {PROTOCOL_VERSION}, got {PROTOCOL_VERSION + 1}"
    assert heard[0] == heard[2] == f"{versions}; install the fedlearn version of the server"
    assert heard[1] == "frame version: expected 1, got 2; install the same fedlearn version on both sides"
