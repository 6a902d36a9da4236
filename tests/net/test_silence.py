import asyncio
import errno
import socket

import pytest

from fedlearn.net.silence import why_silent

REFUSED = "Connect call failed ('127.0.0.1', 12)"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, REFUSED), "nothing listens at far:12"),
        (
            OSError(f"Multiple exceptions: [Errno {errno.EADDRNOTAVAIL}] a, [Errno {errno.ECONNREFUSED}] {REFUSED}"),
            "nothing listens at far:12",
        ),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "the name in far:12 can't be looked up (Name or service not known)",
        ),
        (OSError(errno.EHOSTUNREACH, "Connect call failed"), "this machine has no way to far:12"),
        (OSError(errno.ETIMEDOUT, "Connect call failed"), "nothing comes back from far:12"),
        (TimeoutError(), "nothing comes back from far:12"),
        (ConnectionResetError(errno.ECONNRESET, "x"), "far:12: Connection reset by peer"),
        (ConnectionError("proxy office:1: expected 200"), "proxy office:1: expected 200"),
    ],
)
def test_silence_is_told_in_words(error: OSError, words: str) -> None:
    assert why_silent(error, "far:12") == words


def test_what_asyncio_says_of_a_closed_port_is_understood() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(OSError, match="Connect call failed") as caught:
            asyncio.run(asyncio.open_connection(host, port))
        assert why_silent(caught.value, "far:12") == "nothing listens at far:12"
