"""From what a user names to the texts that are meant."""

import sys
from collections.abc import Callable, Sequence
from typing import BinaryIO, cast, final

from fedlearn.data import hugging_face, python_docs
from fedlearn.data.decoding import check_encoding
from fedlearn.data.download import Cache, is_url
from fedlearn.data.files import FileTexts, find_files
from fedlearn.data.standard_input import StandardInputText
from fedlearn.text.source import Source, Texts

STANDARD_INPUT = "-"


def open_source(
    names: Sequence[str], encoding: str, *, stdin: BinaryIO | None = None, cache: Cache | None = None
) -> Source:
    """The texts of all names in their order. Files are looked up, URLs downloaded; no text is decoded yet.

    Raises:
        ValueError: a name stands for nothing that can be had, or the encoding is none.
    """
    check_encoding(encoding)
    if names.count(STANDARD_INPUT) > 1:
        raise ValueError("data: expected standard input (-) once, got it again; leave it out")
    sources = [_open(name, encoding, stdin, cache or Cache.of_user()) for name in names]
    return sources[0] if len(sources) == 1 else _Sources(sources)


def _open(name: str, encoding: str, stdin: BinaryIO | None, cache: Cache) -> Source:
    if name == python_docs.NAME:
        return python_docs.PythonDocs()
    if name == STANDARD_INPUT:
        return StandardInputText(stdin or _standard_input(), encoding)
    if name.startswith(hugging_face.PREFIX):
        return hugging_face.DataSetTexts(name)
    if is_url(name):
        return FileTexts(name, [cache.fetch(name)], encoding)
    return FileTexts(name, find_files(name), encoding)


def _standard_input() -> BinaryIO:
    """A process without a console, and some shells of Python, have none."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise ValueError("data: expected a text on standard input, this process has none; give a file")
    return cast(BinaryIO, stream)


@final
class _Sources:
    """Several sources as one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.name = ", ".join(source.name for source in sources)
        sizes = [source.size_bytes for source in sources]
        self.size_bytes = sum(sizes) if all(sizes) else 0
        self._sources = sources

    def texts(self, read: Callable[[int], None]) -> Texts:
        for source in self._sources:
            yield from source.texts(read)
