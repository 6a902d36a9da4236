"""Resumes an interrupted download: the bytes that have arrived, and the range that the server sends."""

import http.client
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self, final

import msgspec

from fedlearn.data.exactly import Reads
from fedlearn.storage.durable import PARTIAL_SUFFIX
from fedlearn.system.files import replace

CHUNK_BYTES = 2**18

_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class ByteRange(msgspec.Struct, frozen=True):
    """The range of bytes of a file that a web server sends."""

    start: int
    """The position of the first byte in the file."""
    size: int
    """The whole file's size in bytes; -1 if the server does not say."""
    version: str
    """The name of the file's present content; empty if the server does not say."""

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str]) -> Self:
        """The range that the status and headers of a response name.

        Raises:
            http.client.HTTPException: the range makes no sense.
        """
        tag = headers.get("ETag") or ""
        # A weak tag names content that is as good, not the same bytes.
        version = (headers.get("Last-Modified") or "") if not tag or tag.startswith("W/") else tag
        if status != http.client.PARTIAL_CONTENT:
            length = headers.get("Content-Length") or ""
            return cls(0, int(length) if length.isdecimal() else -1, version)
        if (match := _CONTENT_RANGE.fullmatch(headers.get("Content-Range") or "")) is None:
            raise http.client.HTTPException(f"Content-Range {headers.get('Content-Range')!r}")
        return cls(int(match[1]), -1 if match[2] == "*" else int(match[2]), version)


@final
class Transfer:
    """A file that arrives in pieces, beside its place until all of it is there."""

    def __init__(self, path: Path, *, is_checked: bool) -> None:
        """`is_checked`: a hash will tell whether the pieces belong together, where the server does not."""
        self.is_complete = False
        self._path = path
        self._partial = path.with_name(path.name + PARTIAL_SUFFIX)
        self._version_file = path.with_name(path.name + ".version")
        self._version = self._version_file.read_text(encoding="utf-8") if self._version_file.exists() else ""
        if not (self._version or is_checked):
            self._partial.unlink(missing_ok=True)

    @property
    def n_bytes(self) -> int:
        """Number of bytes that have arrived."""
        return self._partial.stat().st_size if self._partial.exists() else 0

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a request for the missing bytes of the same version."""
        if not self.n_bytes:
            return {}
        return {"Range": f"bytes={self.n_bytes}-"} | ({"If-Range": self._version} if self._version else {})

    def receive(self, extent: ByteRange, response: Reads, on_progress: Callable[[int], None]) -> None:
        """Stores the bytes of a response; `on_progress` is called with the number of bytes that have arrived.

        Raises:
            http.client.HTTPException: the response is of other bytes, or ends too early.
            ConnectionError: the line broke.
            OSError: the disk can't take it.
        """
        if extent.start not in (0, self.n_bytes):
            raise http.client.HTTPException(f"bytes from {extent.start} on, not from {self.n_bytes}")
        if not extent.start:
            self.restart()  # before the version is written, which is not that of what was there
        self._version = extent.version
        self._version_file.write_text(extent.version, encoding="utf-8")
        with open(self._partial, "ab") as file:
            while chunk := _read(response):
                file.write(chunk)
                on_progress(file.tell())
        if 0 <= extent.size != self.n_bytes:
            raise http.client.HTTPException(f"the line was cut at {self.n_bytes} of {extent.size} bytes")
        self.is_complete = True

    def restart(self) -> None:
        """Removes the bytes that have arrived, which the server's file no longer has."""
        self._partial.unlink(missing_ok=True)

    def finish(self) -> None:
        """Puts the file into its place."""
        replace(self._partial, self._path)
        self._version_file.unlink(missing_ok=True)


def _read(response: Reads) -> bytes:
    """The next bytes of the response.

    Raises:
        ConnectionError: the line broke, in whatever way; errors of the disk are other ones.
    """
    try:
        return response.read(CHUNK_BYTES)
    except OSError as error:
        raise ConnectionError(error.strerror or str(error)) from error
