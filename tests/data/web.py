"""A server of one file on this machine, that can cut its line."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import final

from tests.http_answering import answering


@final
class Web:
    """What it serves, and what it was asked."""

    def __init__(self) -> None:
        self.content = b""
        self.tag = '"one"'
        """The content's version; empty for none."""
        self.cuts: list[int] = []
        """Bytes after which the next answers end too early."""
        self.knows_ranges = True
        self.says_length = True
        self.status = 200
        """Of all answers, where it is another one."""
        self.asked: list[str | None] = []
        """The ranges of all requests."""
        self.url = ""


@contextmanager
def serving() -> Iterator[Web]:
    """Serves from a thread."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(web, self)

        def log_message(self, *_: object) -> None:
            return

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        web.url = f"{url}/folder/some%20text.txt"
        yield web


def answer(web: Web, request: BaseHTTPRequestHandler) -> None:
    asked = request.headers["Range"]
    web.asked.append(asked)
    if web.status != 200:
        request.send_error(web.status)
        return
    size, start = len(web.content), 0
    is_same = request.headers["If-Range"] in (None, web.tag)
    if asked and web.knows_ranges and is_same:
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if start >= size:
            request.send_error(416)
            return
        request.send_response(206)
        request.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
    else:
        request.send_response(200)
    if web.tag:
        request.send_header("ETag", web.tag)
    body = web.content[start:]
    if web.says_length:
        request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body[: web.cuts.pop(0)] if web.cuts else body)
