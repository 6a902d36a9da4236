"""The rules of docstrings that can be read off the sources."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture_rules import REPOSITORY, python_files
from tests.test_architecture import write

RAISES_IN_A_SENTENCE = re.compile(r"\bRaises\s+(?:an?\s+|the\s+)?`*[\w.]*[A-Z]\w*")

WITHOUT_A_SUBJECT = re.compile(
    r"(And|As|At|Behind|But|By|For|From|If|In|Into|Not|Of|On|Or|Since|So|That|To|Until|Where|Which|Who|Whom|Whose"
    r"|With|Without)\b|[a-z]"
)
"""Beginnings of a docstring that is no sentence with a subject, or goes on with the one before."""


def docstrings_that_raise_in_a_sentence(root: Path) -> list[str]:
    """Docstrings that say what is raised, but not in a `Raises:` block."""
    found = []
    for path in python_files(root):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if sentence := RAISES_IN_A_SENTENCE.search(ast.get_docstring(node) or ""):
                name = "module" if isinstance(node, ast.Module) else node.name
                found.append(f"{path.relative_to(root)}: {name}: {sentence.group()}")
    return found


def docstrings_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, those of fields and constants included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def docstrings_without_a_subject(root: Path) -> list[str]:
    """Docstrings that begin in the middle of a sentence, or refer to another docstring for it."""
    found = []
    for path in python_files(root, ("es_core", "fedlearn", "benchmarks", "fuzz")):
        for line, text in sorted(docstrings_of(ast.parse(path.read_text(encoding="utf-8")))):
            if WITHOUT_A_SUBJECT.match(text) or "Raises as above" in text:
                found.append(f"{path.relative_to(root)}:{line}: {text.splitlines()[0]}")
    return found


def test_what_is_raised_stands_in_a_block() -> None:
    assert docstrings_that_raise_in_a_sentence(REPOSITORY) == []


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("Raises ValueError for a text.", "Raises ValueError"),
        ("Runs it. Raises RuntimeError where it fails.", "Raises RuntimeError"),
        ("A run.\n\n    Raises `StorageError` without a folder.\n    ", "Raises `StorageError"),
        ("Raises http.client.HTTPException.", "Raises http.client.HTTPException"),
        ("Raises a ValueError.", "Raises a ValueError"),
    ],
)
def test_a_docstring_that_raises_in_a_sentence_is_seen(tmp_path: Path, docstring: str, sentence: str) -> None:
    block = "A run.\n\n    Raises:\n        ValueError: there is none.\n    "
    write(tmp_path, "benchmarks/run.py", f'def load():\n    """{block}"""\n')
    assert docstrings_that_raise_in_a_sentence(tmp_path) == []
    for text, name in (
        (f'"""{docstring}"""', "module"),
        (f'def load():\n    """{docstring}"""', "load"),
        (f'async def load():\n    """{docstring}"""', "load"),
        (f'class Run:\n    """{docstring}"""', "Run"),
    ):
        write(tmp_path, "benchmarks/run.py", text)
        assert docstrings_that_raise_in_a_sentence(tmp_path) == [f"benchmarks/run.py: {name}: {sentence}"]


def test_docstrings_are_sentences_with_a_subject() -> None:
    assert docstrings_without_a_subject(REPOSITORY) == []


@pytest.mark.parametrize("docstring", ["Of all.", "That it lends; 0: any.", "and what goes with it.", "As `crc32`."])
def test_a_docstring_without_a_subject_is_seen(tmp_path: Path, docstring: str) -> None:
    write(tmp_path, "fedlearn/runs/run.py", 'LIMIT = 3\n"""The most steps, of all runs; whatever begins."""\n')
    assert docstrings_without_a_subject(tmp_path) == []
    for text, line in (
        (f'"""{docstring}"""', 1),
        (f'LIMIT = 3\n"""{docstring}"""', 2),
        (f'class Run:\n    steps: int\n    """{docstring}"""', 3),
        (f'async def load():\n    """{docstring}\n\n    Slowly.\n    """', 2),
    ):
        write(tmp_path, "fedlearn/runs/run.py", text)
        assert docstrings_without_a_subject(tmp_path) == [f"fedlearn/runs/run.py:{line}: {docstring}"]


def test_a_docstring_that_raises_as_another_one_is_seen(tmp_path: Path) -> None:
    write(tmp_path, "fedlearn/runs/run.py", 'def load():\n    """Loads it. Raises as above."""\n')
    assert docstrings_without_a_subject(tmp_path) == ["fedlearn/runs/run.py:2: Loads it. Raises as above."]
