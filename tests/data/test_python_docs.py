import sys
from pathlib import Path

import pytest

from fedlearn.data.python_docs import PythonDocs


def text_of(source: PythonDocs) -> str:
    (text,) = source.texts(lambda _: None)
    return "".join(text)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A standard library with little in it; beside it other packages, as where Windows has them."""
    sources: dict[str, str | bytes] = {
        "abc.py": '"""An abstract class is the base of other classes."""\n',
        "json/decoder.py": 'def f():\n    r"""Gives the Python value of a JSON document.\n\n    >>> f()\n    """\n',
        "json/tests/test_json.py": '"""What is written here is for those who test."""\n',
        "site-packages/other.py": '"""What others have written stays out of the text."""\n',
        "other.py": '"""What others have written stays out of the text."""\n',
        "ast.py": b'"""Names of people may be \xe9 in old files of text."""\n',
        "cmd.py": '"""An abstract class is the base of other classes."""\n',
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(source if isinstance(source, bytes) else source.encode())
    monkeypatch.setattr("sysconfig.get_path", lambda name: {"stdlib": str(tmp_path)}[name])
    return tmp_path


@pytest.fixture
def _without_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data", None)
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)


def test_text_is_prose_alone() -> None:
    source = PythonDocs()
    text = text_of(source)
    lines = text.splitlines()
    assert source.size_bytes == len(text.encode()) > 500_000
    assert len(set(text)) < 80
    assert "  " not in text
    assert all(any(map(str.isalpha, line)) for line in lines)
    assert len(lines) == len(set(lines))
    assert sum(map(str.isspace, text)) < len(text) / 5


def test_what_is_held_out_is_like_the_rest() -> None:
    """The last tenth: in the order of names it would be turtles, windows and XML alone."""
    text = text_of(PythonDocs())
    held_out = text[-len(text) // 10 :]
    for word in (" the ", " class", "Return"):
        share, held_out_share = (part.count(word) / len(part) for part in (text, held_out))
        assert 0.5 < held_out_share / share < 2.0


@pytest.mark.usefixtures("_without_topics")
def test_docstrings_of_the_standard_library_are_read_and_nothing_else(library: Path) -> None:
    assert library.is_dir()
    # In an order that is not that of names.
    assert text_of(PythonDocs()).splitlines() == [
        "Gives the Python value of a JSON document.",
        "An abstract class is the base of other classes.",
    ]


def test_language_reference_is_enough_where_the_library_has_no_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path / "python313.zip"))
    assert PythonDocs().size_bytes > 50_000


@pytest.mark.usefixtures("_without_topics")
def test_python_without_documentation_asks_for_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(ValueError, match=r"got .* with neither; name a text of yours with --data FILE"):
        PythonDocs()
