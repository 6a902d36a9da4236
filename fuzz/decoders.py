"""Coverage-guided fuzzing of one decoder at a time: no bytes may end otherwise than in a value, or in the error that
the decoder names, and none may take more memory than its limits allow.

pip install atheris
python fuzz/decoders.py graph --cases 1000000

Where a checksum, a compression or an archive stands before the content, the content is packed anew, so that cases get
behind it.
"""

import argparse
import gzip
import io
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzzer import add_arguments, fuzz, instrumented

INSTRUMENTED = ["fedlearn.wire", "fedlearn.graphs", "fedlearn.data", "fedlearn.tasks", "fedlearn.config"]

with instrumented(INSTRUMENTED):
    import msgspec
    from conversations import DIGEST, LAYOUT

    from fedlearn.config import Schema
    from fedlearn.config.sources import load_config
    from fedlearn.data.files import FileTexts
    from fedlearn.data.idx import read_idx
    from fedlearn.data.npz import read_npz
    from fedlearn.data.rows import RowTexts
    from fedlearn.es.optimizers import Adam
    from fedlearn.es.snapshot import Snapshot
    from fedlearn.es.update import Update
    from fedlearn.graphs import codec
    from fedlearn.graphs.checks import check
    from fedlearn.graphs.graph import ArraySpec, Call, Graph, Value
    from fedlearn.tasks.blocks import NO_BLOCK, decode_block, encode_block
    from fedlearn.tasks.parts import activations
    from fedlearn.tasks.registry import find_kind, kind_names
    from fedlearn.tasks.torch_graph.sharing import Attachment, unpacked
    from fedlearn.wire.encoding.codec import decode, encode
    from fedlearn.wire.errors import RemoteProtocolError
    from fedlearn.wire.messages import FromClient, FromServer, Result
    from fedlearn.wire.states import MessageType

MEMORY_MB = 384
"""Megabytes that the process may take, with the fuzzer's own and what was imported."""

EXPECTED = (ValueError, RemoteProtocolError)
"""What decoders raise; what Python's own codecs say counts as none of them."""

IN_MEMORY = "/dev/shm"
FOLDER = Path(tempfile.mkdtemp(prefix="fedlearn-decoders-", dir=IN_MEMORY if Path(IN_MEMORY).is_dir() else None))
TYPES: list[MessageType] = sorted({*FromClient.__args__, *FromServer.__args__}, key=lambda kind: kind.__name__)
SCHEMAS = [Schema(find_kind(name).options) for name in sorted(kind_names())]
CODECS: list[activations.ActivationCodec] = ["float32", "float16", "int8-delta", "int4-delta"]

GRAPH = Graph(
    (ArraySpec("x", (2, 3)),),
    (ArraySpec("w", (4, 3)),),
    (ArraySpec("kept", (4,)),),
    (),
    (
        Call(("y",), "linear.default", (Value("x"), Value("w"), Value("kept"))),
        Call(("loss",), "mean.default", (Value("y"), None)),
    ),
    ("loss",),
)


def written(name: str, data: bytes) -> Path:
    path = FOLDER / name
    path.write_bytes(data)
    return path


def npz(data: bytes) -> None:
    """A member of an archive, or with a zero before it an archive as it is."""
    if data[:1] == b"\0":
        read_npz(written("some.npz", data[1:]), ("a", "b"))
        return
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", data)
    read_npz(written("some.npz", packed.getvalue()), ("a",))


def idx(data: bytes) -> None:
    read_idx(written("images", data))
    read_idx(written("images.gz", gzip.compress(data, 1)))


def idx_packed(data: bytes) -> None:
    read_idx(written("images.gz", data))


def graph(data: bytes) -> None:
    check(codec.decode(zlib.compress(data, 1)))


def attachment(data: bytes) -> None:
    check(unpacked(data).graph)


def message(data: bytes) -> None:
    decode(data[1:], TYPES[data[0] % len(TYPES)])


def activation(data: bytes) -> None:
    n_members, width, base = data[0] % 8, 1 + data[1] % 80, np.zeros(1 + data[1] % 80, np.float32)
    activations.decode(CODECS[data[2] % 4], data[3:], n_members, (width,), base)


def options(data: bytes) -> None:
    name = "x.toml" if data[0] & 1 else "x.json"
    load_config(SCHEMAS[data[0] // 2 % len(SCHEMAS)], (name, data[1:].decode("utf-8", "replace")), {}, {})


def rows(data: bytes) -> None:
    path = written("x.csv" if data[0] & 1 else "x.jsonl", data[1:])
    for text in RowTexts(FileTexts(str(path), [path], "utf-8"), "").texts(lambda _: None):
        for _ in text:
            pass


def samples() -> dict[str, list[bytes]]:
    """What each decoder reads as it should."""
    few = np.zeros(LAYOUT.size, np.float32)
    update = Update(0, NO_BLOCK, ((0, 8),), np.zeros(8, np.int8), 1, 4, 0.1, Adam(0.01), True, 0.0, "zero", 0.0, 1.0)
    messages = [Result(0, 0, few, DIGEST), Snapshot(0, DIGEST, few, {"m": few}, {"p": 0.5}), update]
    array, whole = io.BytesIO(), io.BytesIO()
    np.save(array, np.zeros((2, 3), np.uint8))
    np.savez_compressed(whole, a=np.arange(6, dtype=np.uint8), b=np.arange(3, dtype=np.uint8))
    images = b"\0\0\x08\2" + b"\0\0\0\2\0\0\0\3" + bytes(6)
    frozen = encode_block({"kept": np.zeros(4, np.float32)})
    return {
        "npz": [array.getvalue(), b"\0" + whole.getvalue()],
        "idx": [images],
        "idx-packed": [gzip.compress(images)],
        "graph": [zlib.decompress(codec.encode(GRAPH))],
        "attachment": [msgspec.msgpack.encode(Attachment(codec.encode(GRAPH), frozen, {"w": 1.0}, {"w": "x"}))],
        "message": [bytes([TYPES.index(type(one))]) + encode(one) for one in messages],
        "activation": [bytes([2, 4, n]) + bytes(2 * activations.member_bytes(CODECS[n], (5,))) for n in range(4)],
        "block": [frozen],
        "options": [b"\1sigma = 0.1\n[run]\nsteps = 5\n", b'\0{"run": {"steps": 5}}', b"\3share = 'auto'"],
        "rows": [b'\0{"text": "one"}\n{"text": null}\n', b'\1text,n\n"one",1\n'],
    }


READERS: dict[str, Callable[[bytes], Any]] = {
    "npz": npz,
    "idx": idx,
    "idx-packed": idx_packed,
    "graph": graph,
    "attachment": attachment,
    "message": message,
    "activation": activation,
    "block": decode_block,
    "options": options,
    "rows": rows,
}


def try_one(read: Callable[[bytes], Any], data: bytes) -> None:
    """One case. Raises whatever must not be raised."""
    if len(data) < 3:
        return
    try:
        read(data)
    except EXPECTED as error:
        if isinstance(error, UnicodeError):
            raise


def main() -> None:
    """Fuzzes for a while; the fuzzer ends the process."""
    parser = argparse.ArgumentParser(description="Coverage-guided fuzzing of decoders.")
    parser.add_argument("decoder", choices=READERS)
    add_arguments(parser, minutes=1.0, length=1024)
    chosen = parser.parse_args()
    read = READERS[chosen.decoder]
    one = read if chosen.only_seeds else lambda data: try_one(read, data)
    fuzz(one, samples()[chosen.decoder], chosen, memory_mb=MEMORY_MB)


if __name__ == "__main__":
    main()
