"""The rules of docstrings that can be read off the sources."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture_rules import REPOSITORY, python_files
from tests.test_architecture import write

RAISES_IN_A_SENTENCE = re.compile(r"\bRaises\s+(?:an?\s+|the\s+)?`*[\w.]*[A-Z]\w*")


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
