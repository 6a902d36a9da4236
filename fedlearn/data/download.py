"""Texts from URLs: kept in the user's cache, gone on with after a cut, compared with a hash where one is given.

pooch begins anew after a cut, since it throws away what came, and takes no notice of a full disk before it is one.
"""

import hashlib
import http.client
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self, final
from urllib.parse import urldefrag, urlsplit

from fedlearn.data.transfer import ByteRange, Transfer
from fedlearn.system.files import cache_folder
from fedlearn.text.source import NoProgress, Progress

ATTEMPTS = 5
"""Number of attempts in a row without any bytes after which a download is given up."""

_SHA256 = re.compile(r"sha256=([0-9a-f]{64})", re.IGNORECASE)


def is_url(name: str) -> bool:
    """Checks for the name of something on the web."""
    return name.lower().startswith(("http://", "https://"))


@final
class Cache:
    """Files that were downloaded, by their URL."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of_user(cls, environ: Mapping[str, str] | None = None) -> Self:
        """The user's cache: `fedlearn` in $XDG_CACHE_HOME, else in ~/.cache (Windows: in %LOCALAPPDATA%)."""
        return cls(cache_folder(os.environ if environ is None else environ) / "fedlearn")

    def fetch(self, name: str, progress: Progress | None = None) -> Path:
        """The file that a URL names, downloaded unless it is there; `#sha256=HEX` says what it must be.

        Raises:
            ValueError: it can't be had, or is another one.
        """
        url, expected = _parsed(name)
        progress = progress or NoProgress()
        path = self._folder / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}-{_last_part(url)}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                progress.begin(f"downloading {_last_part(url)}", "bytes")
                self._download(url, path, progress, is_checked=bool(expected))
            if expected:
                progress.begin(f"checking {_last_part(url)}")
            if expected and (found := _hash_of(path)) != expected:
                path.unlink()
                raise ValueError(
                    f"data: expected a file with sha256={expected} at {url}, got one with {found}; it was deleted: "
                    "try again, or see whether the hash is that of this file"
                )
        except OSError as error:
            raise ValueError(
                f"data: expected a cache to write to, got {self._folder}: {error.strerror}; make room, or set "
                "XDG_CACHE_HOME to another folder"
            ) from error
        return path

    def _download(self, url: str, path: Path, progress: Progress, *, is_checked: bool) -> None:
        transfer = Transfer(path, is_checked=is_checked)
        failures = 0
        while not transfer.is_complete:
            before = transfer.n_bytes
            try:
                self._attempt(url, transfer, progress)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and before:
                        transfer.restart()
                        continue
                    raise ValueError(f"data: expected a file at {url}, got {error.code} {error.reason}") from error
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                failures = 0 if transfer.n_bytes > before else failures + 1
                if failures == ATTEMPTS:
                    raise ValueError(
                        f"data: expected a file at {url}, got {getattr(error, 'reason', error)} after "
                        f"{transfer.n_bytes} bytes; try again, which goes on from there where the server can"
                    ) from error
        transfer.finish()

    def _attempt(self, url: str, transfer: Transfer, progress: Progress) -> None:
        request = urllib.request.Request(url, headers={"User-Agent": "fedlearn", **transfer.headers})
        with urllib.request.urlopen(request, timeout=30) as response:
            extent = ByteRange.of(response.status, response.headers)
            if (missing := extent.size - transfer.n_bytes) > (free := shutil.disk_usage(self._folder).free):
                raise ValueError(
                    f"data: expected room for {missing / 1e6:,.0f} MB in {self._folder}, {free / 1e6:,.0f} MB are "
                    "free; make room, or set XDG_CACHE_HOME to another folder"
                )
            transfer.receive(extent, response, lambda n_bytes: progress.reach(n_bytes, max(extent.size, 0)))


def _parsed(name: str) -> tuple[str, str]:
    """URL and expected hash, empty for none."""
    url, fragment = urldefrag(name)
    if not urlsplit(url).hostname:
        raise ValueError(f"data: expected a URL such as https://HOST/FILE, got {name!r}")
    if not fragment:
        return url, ""
    if (match := _SHA256.fullmatch(fragment)) is None:
        raise ValueError(f"data: expected 64 hexadecimal digits after #sha256=, got #{fragment}")
    return url, match[1].lower()


def _last_part(url: str) -> str:
    """The name of the file at the URL, in harmless characters."""
    return re.sub(r"[^\w.-]", "_", urlsplit(url).path.rpartition("/")[2])[-60:] or "file"


def _hash_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
