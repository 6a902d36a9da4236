"""Encodes graphs as bytes and decodes them: JSON, compressed with deflate.

Source: https://www.rfc-editor.org/rfc/rfc1950 (zlib)
"""

import zlib

import msgspec

from fedlearn.graphs.graph import Graph, GraphError

MAX_ENCODED_BYTES = 2**20
"""The most bytes of an encoded graph: a hundred times those of a transformer with fifty layers."""
MAX_TEXT_BYTES = 2**23
"""The most bytes of a graph's text; parsed, it takes about ten times as much memory."""
_MAX_REASON_LENGTH = 300

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Graph)


def encode(graph: Graph) -> bytes:
    """The compressed JSON of a graph.

    Raises:
        GraphError: the graph is too large to be decoded again.
    """
    text = _encoder.encode(graph)
    data = zlib.compress(text, 9)
    if len(text) > MAX_TEXT_BYTES or len(data) > MAX_ENCODED_BYTES:
        raise GraphError(
            f"graph: expected at most {MAX_TEXT_BYTES} bytes of JSON and {MAX_ENCODED_BYTES} compressed, "
            f"got {len(text)} and {len(data)}; start the server with --share nothing"
        )
    return data


def decode(data: bytes) -> Graph:
    """The graph that `encode` was given; `checks.check` says whether it may be run.

    Raises:
        GraphError: the data are longer than allowed, compressed or not, or are no zlib stream, or no JSON of a graph.
    """
    if len(data) > MAX_ENCODED_BYTES:
        raise GraphError(f"graph: expected at most {MAX_ENCODED_BYTES} compressed bytes, got {len(data)}")
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(data, MAX_TEXT_BYTES + 1)
    except zlib.error as error:
        raise GraphError(f"graph: expected a zlib stream: {error}") from error
    if len(text) > MAX_TEXT_BYTES:
        raise GraphError(f"graph: expected at most {MAX_TEXT_BYTES} bytes of JSON, got more")
    if not decompressor.eof or decompressor.unused_data:
        raise GraphError("graph: expected one whole zlib stream, got a part of one or something behind it")
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise GraphError(
            f"graph: expected the JSON of a graph that this version of fedlearn knows: {_shortened(str(error))}"
        ) from error


def _shortened(reason: str) -> str:
    """The beginning and end of a reason: the end says where it is, and the middle may quote megabytes of what came."""
    return reason if len(reason) <= _MAX_REASON_LENGTH else f"{reason[:100]}...{reason[100 - _MAX_REASON_LENGTH :]}"
