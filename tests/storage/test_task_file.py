import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import fedlearn
from fedlearn.storage import task_file
from fedlearn.storage.task_file import is_task_file, load_task

TASK = """
from fedlearn.tasks.function import function
import numpy as np

task = function(lambda x: float((x ** 2).sum()), {"x": np.ones(3)}, covariance=False)
other = task
number = 7
kind = type(task)
"""

Write = Callable[..., str]


@pytest.fixture(autouse=True)
def _modules() -> Iterator[None]:
    """What a task's file imports is forgotten again."""
    paths, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = paths
    for name in set(sys.modules) - modules:
        if not name.startswith(("fedlearn", "es_core", "numpy")):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of a task and gives it as a user names it."""

    def written(text: str = TASK, name: str = "some_task.py", folder: str = "") -> str:
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
        return f"{path}:task"

    return written


def source_of(entry: str) -> bytes:
    """Of the file as it is now, imported anew."""
    for name in ("some_task", "beside", "below", "below.inner"):
        sys.modules.pop(name, None)
    return load_task(entry).source


def test_a_task_is_what_the_file_says_and_knows_where_it_came_from(write: Write, tmp_path: Path) -> None:
    named = load_task(write())
    assert list(named.task.tensors) == ["x"]
    assert named.entry == f"{tmp_path}/some_task.py:task"
    assert len(named.source) == 16


def test_a_path_may_be_relative(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    monkeypatch.chdir(tmp_path)
    assert load_task("some_task.py:task").entry == f"{tmp_path}/some_task.py:task"


@pytest.mark.parametrize(
    ("text", "is_file"), [("rnn", False), ("function", False), ("a.py:b", True), ("a.py", True), ("a:b", True)]
)
def test_a_file_is_told_from_a_kind(text: str, *, is_file: bool) -> None:
    assert is_task_file(text) is is_file


@pytest.mark.parametrize("entry", ["some_task.py", ":task", "some_task.py:", "some_task.txt:task", "some_task:task"])
def test_anything_but_a_file_and_a_name_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"task: expected FILE.py:NAME, e.g. digits.py:task, got"):
        load_task(entry)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a Python file, got '.*nowhere.py', which does not exist"):
        load_task(f"{tmp_path}/nowhere.py:task")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("missing", "nothing of that name"),
        ("number", "one of type int"),
        ("function", "a function, which is no task and is not called"),
        ("kind", "a class"),
    ],
)
def test_a_name_that_is_no_task_is_refused_with_those_that_are(write: Write, name: str, what: str) -> None:
    with pytest.raises(ValueError, match=rf"expected a task called {name} in .*, got {what}; tasks there: task, other"):
        load_task(write().replace(":task", f":{name}"))


def test_a_file_without_tasks_says_so(write: Write) -> None:
    with pytest.raises(ValueError, match=r"got nothing of that name; tasks there: none"):
        load_task(write("number = 7\n"))


def test_what_the_file_raises_comes_through(write: Write) -> None:
    with pytest.raises(ZeroDivisionError):
        load_task(write("1 / 0\n"))


def test_any_change_of_the_file_changes_its_hash_and_line_ends_do_not(write: Write) -> None:
    source = source_of(write())
    assert source_of(write(TASK.replace("\n", "\r\n"))) == source
    assert source_of(write(TASK + "# a remark\n")) != source
    assert source_of(write()) == source


def test_the_folder_that_the_file_lies_in_does_not_count(write: Write) -> None:
    assert source_of(write(folder="here")) == source_of(write(folder="there"))


def test_another_name_of_the_file_counts(write: Write) -> None:
    assert source_of(write(name="some_task.py")) != source_of(write(name="below.py"))


@pytest.mark.parametrize("beside", ["beside.py", "below/__init__.py", "below/inner.py"])
def test_a_change_of_a_module_that_it_imports_from_beside_or_below_changes_its_hash(write: Write, beside: str) -> None:
    folder, _, name = beside.rpartition("/")
    for other in ("beside.py", "below/__init__.py", "below/inner.py"):
        write("", name=other.rpartition("/")[2], folder=other.rpartition("/")[0])
    entry = write("import beside\nimport below.inner\n" + TASK)
    source = source_of(entry)
    write("x = 1\n", name=name, folder=folder)
    assert source_of(entry) != source
    write("", name=name, folder=folder)
    assert source_of(entry) == source


def test_a_module_that_it_does_not_import_does_not_count(write: Write) -> None:
    entry = write()
    source = source_of(entry)
    write("x = 1\n", name="beside.py")
    assert source_of(entry) == source


def test_the_program_that_runs_does_not_count(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = write()
    source = source_of(entry)
    main = ModuleType("__main__")
    main.__file__ = str(tmp_path / "client.py")
    Path(main.__file__).touch()
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert source_of(entry) == source


@pytest.mark.parametrize("place", ["site-packages", "dist-packages"])
def test_what_is_installed_below_the_folder_does_not_count(write: Write, tmp_path: Path, place: str) -> None:
    entry = write("import below\n" + TASK)
    (tmp_path / place / "below").mkdir(parents=True)
    sys.path.insert(0, str(tmp_path / place))
    package = tmp_path / place / "below" / "__init__.py"
    package.write_text("")
    source = source_of(entry)
    package.write_text("x = 1\n")
    assert source_of(entry) == source


def test_neither_fedlearn_nor_python_count_where_they_lie_below_the_folder() -> None:
    packages = Path(fedlearn.__file__).parent, Path(json.__file__).parents[1]
    counted = task_file._imported_below(Path("/"))
    assert counted
    assert not [file for file in counted for package in packages if file.is_relative_to(package)]


def test_a_file_that_imports_what_is_missing_says_what_to_install(write: Write) -> None:
    entry = write("import nobody_wrote_this", name="needy.py")
    with pytest.raises(ModuleNotFoundError, match=r"^needy.py: expected the module .*; install it: pip install nobody"):
        load_task(entry)


def test_a_relative_import_is_refused_with_the_remedy(write: Write) -> None:
    with pytest.raises(ValueError, match=r"expected imports without a dot, such as `from parts import model`"):
        load_task(write("from .parts import model"))
