"""The sources keep the rules of the design, and each rule sees what breaks it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.architecture_rules import (
    IMPURE_MODULES,
    MAX_CPP_LINES,
    MAX_FILES,
    MAX_PYTHON_LINES,
    REPOSITORY,
    children_started_otherwise,
    classes_that_share_a_name,
    cpp_files,
    drawers,
    files_that_know_python,
    imported_modules,
    impure_imports,
    init_files_that_do_something,
    long_files,
    module_name,
    modules_that_no_test_reaches,
    part_of,
    python_files,
    systems_outside_their_room,
    torch_at_the_top_of_environments,
    torch_outside_its_rooms,
    upward_imports,
)


@pytest.mark.parametrize(
    "rule",
    [
        children_started_otherwise,
        systems_outside_their_room,
        torch_outside_its_rooms,
        torch_at_the_top_of_environments,
        upward_imports,
        impure_imports,
        long_files,
        drawers,
        classes_that_share_a_name,
        init_files_that_do_something,
        modules_that_no_test_reaches,
    ],
)
def test_the_project_keeps_the_rule(rule: Callable[[Path], list[str]]) -> None:
    assert rule(REPOSITORY) == []


def test_only_the_bindings_know_python() -> None:
    assert files_that_know_python(REPOSITORY) == ["bindings.cpp", "bindings.h", "bindings_rnn.cpp"]


def test_the_rules_see_the_files_of_the_project() -> None:
    names = {str(path.relative_to(REPOSITORY)) for path in python_files(REPOSITORY)}
    assert {"es_core/__init__.py", "fedlearn/es/replica.py", "fedlearn/config/schema.py", "server.py"} <= names
    assert len(cpp_files(REPOSITORY)) > 10
    replica = REPOSITORY / "fedlearn" / "es" / "replica.py"
    assert {"es_core", "fedlearn.es.layout", "numpy"} <= imported_modules(REPOSITORY, replica)


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "statement", "imported"),
    [
        ("fedlearn/es/replica.py", "from fedlearn.wire.messages import Hello", "fedlearn.wire.messages"),
        ("fedlearn/es/replica.py", "import fedlearn.text.tokens", "fedlearn.text.tokens"),
        ("fedlearn/es/replica.py", "def f():\n    from fedlearn import text", "fedlearn.text"),
        ("fedlearn/es/replica.py", "from ..text import tokens", "fedlearn.text"),
        ("fedlearn/es/replica.py", "from .. import text", "fedlearn.text"),
        ("fedlearn/es/__init__.py", "from ..text import tokens", "fedlearn.text"),
        ("fedlearn/es/replica.py", "import fedlearn.config", "fedlearn.config"),
        ("fedlearn/config/schema.py", "import fedlearn.graphs", "fedlearn.graphs"),
        (
            "fedlearn/wire/encoding/codec.py",
            "import fedlearn.coordination.steps.plan",
            "fedlearn.coordination.steps.plan",
        ),
        ("fedlearn/net/tcp.py", "import fedlearn.storage.runs", "fedlearn.storage.runs"),
        ("fedlearn/storage/runs.py", "from fedlearn.runs.run import Run", "fedlearn.runs.run"),
        ("fedlearn/client/client.py", "from fedlearn.server.server import Server", "fedlearn.server.server"),
        ("fedlearn/server/server.py", "import server", "server"),
        ("fedlearn/es/replica.py", "from fedlearn import __version__", "fedlearn"),
        ("es_core/__init__.py", "from fedlearn import es", "fedlearn.es"),
        ("server.py", "from client import main", "client"),
    ],
)
def test_an_import_upward_or_sideways_is_seen(tmp_path: Path, path: str, statement: str, imported: str) -> None:
    write(tmp_path, "fedlearn/text/__init__.py", "")
    write(tmp_path, "fedlearn/es/layout.py", "")
    write(tmp_path, path, statement)
    assert upward_imports(tmp_path) == [f"{path}: {part_of(module_name(tmp_path, tmp_path / path))} imports {imported}"]


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("fedlearn/es/replica.py", "import es_core, socket\nfrom fedlearn.es.layout import ParameterLayout"),
        ("fedlearn/es/replica.py", "from . import layout\nfrom .layout import ParameterLayout"),
        ("fedlearn/tasks/rnn/objective.py", "from fedlearn import es, text"),
        ("fedlearn/server/server.py", "import es_core, fedlearn.net.tcp, fedlearn.config.schema"),
        ("fedlearn/__init__.py", "import fedlearn.library.training"),
        ("server.py", "from fedlearn.commands.command_line import main"),
    ],
)
def test_an_import_downward_or_within_a_part_is_allowed(tmp_path: Path, path: str, statement: str) -> None:
    for package in ("text", "es"):
        write(tmp_path, f"fedlearn/{package}/__init__.py", "")
    write(tmp_path, path, statement)
    assert upward_imports(tmp_path) == []


def test_a_drawer_is_seen(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        write(tmp_path, f"fedlearn/wire/file_{number}.py", "")
    write(tmp_path, "fedlearn/wire/__init__.py", "")
    assert drawers(tmp_path) == [f"fedlearn/wire: {MAX_FILES + 1} files, at most {MAX_FILES}"]
    (tmp_path / "fedlearn/wire/file_0.py").unlink()
    assert drawers(tmp_path) == []


def test_two_classes_of_one_name_are_seen(tmp_path: Path) -> None:
    write(tmp_path, "fedlearn/wire/a.py", "class Seat: ...\nclass _Own: ...")
    write(tmp_path, "fedlearn/wire/b.py", "class _Own: ...")
    assert classes_that_share_a_name(tmp_path) == []
    write(tmp_path, "fedlearn/wire/b.py", "class Seat: ...")
    assert classes_that_share_a_name(tmp_path) == ["Seat: fedlearn/wire/a.py, fedlearn/wire/b.py"]


def test_a_part_without_a_layer_is_seen(tmp_path: Path) -> None:
    write(tmp_path, "fedlearn/utils.py", "")
    write(tmp_path, "fedlearn/server/server.py", "import fedlearn.utils")
    assert upward_imports(tmp_path) == [
        "fedlearn/server/server.py: server imports fedlearn.utils",
        "fedlearn/utils.py: utils has no place in LAYERS; give it one",
    ]


@pytest.mark.parametrize("module", IMPURE_MODULES)
@pytest.mark.parametrize("path", ["fedlearn/wire/states.py", "fedlearn/config/schema.py", "fedlearn/text/__init__.py"])
def test_an_impure_import_of_a_pure_part_is_seen(tmp_path: Path, path: str, module: str) -> None:
    for statement in (f"import {module}", f"def f():\n    from {module} import x", f"import {module}.y as z"):
        write(tmp_path, path, statement)
        (violation,) = impure_imports(tmp_path)
        assert violation.startswith(f"{path}: {module}")


def test_an_impure_import_of_any_other_part_is_allowed(tmp_path: Path) -> None:
    write(tmp_path, "fedlearn/net/tcp.py", "import asyncio, socket, logging")
    write(tmp_path, "fedlearn/es/replica.py", "import timeit, randomness")
    assert impure_imports(tmp_path) == []


def test_a_pure_part_that_asks_the_system_is_seen(tmp_path: Path) -> None:
    write(tmp_path, "fedlearn/system/files.py", "import fcntl")
    write(tmp_path, "fedlearn/es/replica.py", "from fedlearn.system.files import replace")
    assert impure_imports(tmp_path) == ["fedlearn/es/replica.py: fedlearn.system.files"]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("import fcntl", "fcntl"),
        ("def f():\n    import resource", "resource"),
        ("from signal import SIGTERM", "signal"),
        ("import os\nos.pread(1, 1, 0)", "os.pread"),
        ("from os import nice", "os.nice"),
        ("import sys\nif sys.platform == 'win32': pass", "sys.platform"),
    ],
)
def test_what_only_some_systems_have_is_seen_outside_its_room(tmp_path: Path, statement: str, name: str) -> None:
    write(tmp_path, "fedlearn/system/files.py", statement)
    write(tmp_path, "fedlearn/client/client.py", "import os\nfrom os import environ, path\nos.fsync(1)")
    assert systems_outside_their_room(tmp_path) == []
    write(tmp_path, "fedlearn/client/client.py", statement)
    assert systems_outside_their_room(tmp_path) == [f"fedlearn/client/client.py: {name}"]


def test_a_child_that_is_started_otherwise_is_seen(tmp_path: Path) -> None:
    write(tmp_path, "fedlearn/server/some.py", "command = [sys.executable, '-m', 'fedlearn']")
    assert children_started_otherwise(tmp_path) == ["fedlearn/server/some.py:1"]


def test_a_long_file_is_seen(tmp_path: Path) -> None:
    for path, limit in (("server.py", MAX_PYTHON_LINES), ("es_core/src/rnn/rnn.cpp", MAX_CPP_LINES)):
        write(tmp_path, path, "\n" * limit)
        assert long_files(tmp_path) == []
        write(tmp_path, path, "\n" * (limit + 1))
        assert long_files(tmp_path) == [f"{path}: {limit + 1} lines, at most {limit}"]
        (tmp_path / path).unlink()


def test_a_module_that_no_test_reaches_is_seen(tmp_path: Path) -> None:
    write(tmp_path, "fedlearn/runs/run.py", "from fedlearn.runs.listing import rows\nfrom fedlearn.board import curve")
    write(tmp_path, "fedlearn/runs/listing.py", "")
    write(tmp_path, "fedlearn/runs/plot.py", "")
    write(tmp_path, "fedlearn/board/curve.py", "")
    write(tmp_path, "tests/board/test_app.py", "import fedlearn.board")
    others = ["fedlearn/board/curve.py", "fedlearn/runs/plot.py"]
    assert sorted(modules_that_no_test_reaches(tmp_path)) == sorted(
        [*others, "fedlearn/runs/listing.py", "fedlearn/runs/run.py"]
    )
    for test, text in (("tests/runs/test_run.py", ""), ("tests/faults/test_runs.py", "import fedlearn.runs.run")):
        write(tmp_path, test, text)
        assert sorted(modules_that_no_test_reaches(tmp_path)) == others
        (tmp_path / test).unlink()
    write(tmp_path, "fedlearn/runs/__init__.py", "from fedlearn.runs.run import Run")
    write(tmp_path, "tests/faults/test_runs.py", "import fedlearn.runs")
    assert sorted(modules_that_no_test_reaches(tmp_path)) == others


def test_another_file_that_knows_python_is_seen(tmp_path: Path) -> None:
    write(tmp_path, "es_core/src/bindings.cpp", "#include <pybind11/pybind11.h>")
    write(tmp_path, "es_core/src/replicated/noise.h", "#include <pybind11/numpy.h>")
    write(tmp_path, "es_core/src/replicated/noise.cpp", "#include <vector>")
    assert files_that_know_python(tmp_path) == ["bindings.cpp", "noise.h"]


@pytest.mark.parametrize(
    "statement", ["def f(): ...", "class A: ...", "TABLE = {}", "__all__ = names()", "print()", "if True: import a"]
)
def test_an_init_file_that_does_something_is_seen(tmp_path: Path, statement: str) -> None:
    text = '"""Package."""\n\nfrom a import b\n\n__all__ = ["b"]\n__version__ = "1"\n'
    write(tmp_path, "fedlearn/es/__init__.py", text)
    assert init_files_that_do_something(tmp_path) == []
    write(tmp_path, "fedlearn/es/__init__.py", text + statement)
    assert init_files_that_do_something(tmp_path) == ["fedlearn/es/__init__.py:7"]


def test_torch_outside_its_rooms_is_seen(tmp_path: Path) -> None:
    write(tmp_path, "fedlearn/tasks/torch/members/mode.py", "import torch")
    assert torch_outside_its_rooms(tmp_path) == []
    write(tmp_path, "fedlearn/tasks/task.py", "def f():\n    from torch import nn")
    assert torch_outside_its_rooms(tmp_path) == ["fedlearn/tasks/task.py: torch"]


def test_torch_at_the_top_of_an_environments_file_is_seen(tmp_path: Path) -> None:
    path = "fedlearn/tasks/environment/policy.py"
    write(
        tmp_path,
        path,
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\ndef f():\n    import torch",
    )
    assert torch_at_the_top_of_environments(tmp_path) == []
    for statement in ("import torch.nn", "from torch import nn"):
        write(tmp_path, path, statement)
        assert torch_at_the_top_of_environments(tmp_path) == [path]
