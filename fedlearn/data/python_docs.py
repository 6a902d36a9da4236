"""The language reference that comes with CPython: half a megabyte of English that everybody has."""

from collections.abc import Callable
from typing import final

from fedlearn.text.source import Texts

NAME = "python-docs"


@final
class PythonDocs:
    """All topics in one text, a blank line between them."""

    name = NAME

    def __init__(self) -> None:
        from pydoc_data.topics import topics  # half a megabyte that only this source needs

        self._text = "\n\n".join(topics[name] for name in sorted(topics))
        self.size_bytes = len(self._text.encode())

    def texts(self, read: Callable[[int], None]) -> Texts:
        read(self.size_bytes)
        yield iter([self._text])
