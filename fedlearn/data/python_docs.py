"""CPython's documentation in English: the language reference, and the docstrings of its standard library."""

import re
import sys
import sysconfig
from binascii import crc32
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import final

from fedlearn.text.prose import prose_in
from fedlearn.text.source import Texts

NAME = "python-docs"

_TESTS = {"test", "tests", "idle_test"}
_DOCSTRING = re.compile(r'^[ \t]*[rRuU]?"""(.*?)"""', re.DOTALL | re.MULTILINE)


@final
class PythonDocs:
    """A source with all prose of this Python in one text, one paragraph in a line; other versions have other texts."""

    name = NAME

    def __init__(self) -> None:
        """Reads it.

        Raises:
            ValueError: this Python came without documentation.
        """
        texts = {**_topics(), **_docstrings(Path(sysconfig.get_path("stdlib")))}
        # Not in the order of names: what is held out comes from the end, and must be like the rest.
        ordered = sorted(texts, key=lambda name: crc32(name.encode()))
        lines = dict.fromkeys(line for name in ordered for line in prose_in(texts[name]))
        if not lines:
            raise ValueError(
                f"data: expected a Python with its language reference or the sources of its library, got "
                f"{sys.executable} with neither; name a text of yours with --data FILE"
            )
        self._text = "\n".join(lines) + "\n"
        self.size_bytes = len(self._text.encode())

    def texts(self, read: Callable[[int], None]) -> Texts:
        read(self.size_bytes)
        yield iter([self._text])


def _topics() -> dict[str, str]:
    """The language reference by its topics, which a small installation may lack."""
    try:
        from pydoc_data.topics import topics  # half a megabyte that only this source needs
    except ImportError:
        return {}
    return topics


def _docstrings(library: Path) -> dict[str, str]:
    """The docstrings of each module whose source is there; whatever else was installed into this folder is not
    read."""
    found = {}
    for path in _sources(library):
        source = path.read_text(encoding="utf-8", errors="replace")
        found[path.relative_to(library).as_posix()] = "\n\n".join(_DOCSTRING.findall(source))
    return found


def _sources(library: Path) -> Iterator[Path]:
    for name in sys.stdlib_module_names:
        if (module := library / f"{name}.py").is_file():
            yield module
        for path in (library / name).rglob("*.py"):
            if _TESTS.isdisjoint(path.relative_to(library).parts):
                yield path
