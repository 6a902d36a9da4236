"""The rules of the design that can be read off the sources: who imports whom, purity, and the size of files."""

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

LAYERS = (
    ("es_core", "system"),
    ("es", "text"),
    ("config", "graphs"),
    ("tasks",),
    ("wire",),
    ("coordination", "storage", "net"),
    ("callback", "data"),
    ("terminal",),
    ("runs", "web"),
    ("server", "client"),
    ("simulation", "relay", "board", "launch"),
    ("hub",),
    ("library",),
    ("compat",),
    ("commands",),
    ("fedlearn",),
    ("start",),
    ("server.py", "client.py", "__main__"),
)
"""Imports go from a later layer to an earlier one only; "fedlearn" is that package's own `__init__.py`."""

PURE = ("es", "text", "config", "graphs", "tasks", "wire", "coordination")
TORCH_PLACES = ("fedlearn/compat", "fedlearn/tasks/torch", "fedlearn/tasks/torch_graph", "fedlearn/tasks/environment")
IMPURE_MODULES = ("asyncio", "socket", "time", "random", "logging", "pathlib")
SYSTEM_MODULES = ("ctypes", "fcntl", "grp", "msvcrt", "pty", "pwd", "resource", "signal", "termios", "tty", "winreg")
SYSTEM_NAMES = {
    "os": [
        "O_DIRECTORY",
        "fork",
        "getpgrp",
        "geteuid",
        "getuid",
        "kill",
        "killpg",
        "name",
        "nice",
        "pread",
        "pwrite",
        "setpriority",
        "tcgetpgrp",
    ],
    "sys": ["platform"],
}
"""What only some systems have, or have in their own way."""
HARMLESS = {
    "fedlearn/tasks/torch/members/execution_plans.py: time",  # how long ways take; no loss depends on it
    "fedlearn/tasks/torch_graph/export/capture.py: logging",  # torch.export's own messages are kept away
    "fedlearn/tasks/torch_graph/export/refusals.py: pathlib",  # an error names the user's file
}
MAX_PYTHON_LINES = 400
MAX_FILES = 15
"""Files side by side in one folder, beside its `__init__.py`."""
MAX_CPP_LINES = 500
PYTHON_PLACES = ("es_core", "fedlearn", "benchmarks", "server.py", "client.py")

_LAYER_OF = {part: number for number, layer in enumerate(LAYERS) for part in layer}


def python_files(root: Path, places: tuple[str, ...] = PYTHON_PLACES) -> Iterator[Path]:
    for place in places:
        path = root / place
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.exists() else []


def cpp_files(root: Path) -> list[Path]:
    return sorted(path for suffix in ("*.h", "*.cpp") for path in (root / "es_core" / "src").rglob(suffix))


def part_of(module: str) -> str:
    """The room of the design's table that a module of ours lies in: `fedlearn.es.layout` lies in `es`."""
    package, *rest = module.split(".")
    if package in ("server", "client"):  # the scripts, which share their names with rooms
        return f"{package}.py"
    return rest[0] if package == "fedlearn" and rest else package


def module_name(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imported_modules(root: Path, path: Path) -> set[str]:
    """Full names of all that a file imports, be it at its top or within a function."""
    modules: set[str] = set()
    package = module_name(root, path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            # `from fedlearn import es` imports a part, `from fedlearn import __version__` a name.
            is_root = base == "fedlearn"
            modules.update(
                f"{base}.{alias.name}" if is_root and is_ours(root, f"{base}.{alias.name}") else base
                for alias in node.names
            )
    return modules


def is_ours(root: Path, module: str) -> bool:
    path = root.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def upward_imports(root: Path) -> list[str]:
    found = []
    for path in python_files(root, ("es_core", "fedlearn", "server.py", "client.py")):
        part = part_of(module_name(root, path))
        if part not in _LAYER_OF:
            found.append(f"{path.relative_to(root)}: {part} has no place in LAYERS; give it one")
            continue
        for module in sorted(imported_modules(root, path)):
            other = part_of(module)
            if module.split(".")[0] not in ("es_core", "fedlearn", "server", "client") or other == part:
                continue
            if _LAYER_OF.get(other, len(LAYERS)) >= _LAYER_OF[part]:
                found.append(f"{path.relative_to(root)}: {part} imports {module}")
    return found


def impure_imports(root: Path) -> list[str]:
    found = [
        f"{path.relative_to(root)}: {module}"
        for path in python_files(root, ("fedlearn",))
        if part_of(module_name(root, path)) in PURE
        for module in sorted(imported_modules(root, path))
        if module.split(".")[0] in IMPURE_MODULES or part_of(module) == "system"
    ]
    return [violation for violation in found if violation not in HARMLESS]


def long_files(root: Path) -> list[str]:
    limits = [(path, MAX_PYTHON_LINES) for path in python_files(root)]
    limits += [(path, MAX_CPP_LINES) for path in cpp_files(root)]
    lengths = [(path, len(path.read_text(encoding="utf-8").splitlines()), limit) for path, limit in limits]
    return [
        f"{path.relative_to(root)}: {length} lines, at most {limit}"
        for path, length, limit in lengths
        if length > limit
    ]


def drawers(root: Path) -> list[str]:
    """Folders in which nobody finds anything: they hold more files side by side than a reader takes in at a glance."""
    numbers = Counter(path.parent for path in python_files(root, ("fedlearn", "es_core")) if path.name != "__init__.py")
    return [
        f"{folder.relative_to(root)}: {number} files, at most {MAX_FILES}"
        for folder, number in numbers.items()
        if number > MAX_FILES
    ]


def classes_that_share_a_name(root: Path) -> list[str]:
    """Public classes of one name, which a reader cannot tell apart."""
    places = defaultdict(list)
    for path in python_files(root, ("fedlearn", "es_core")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(root)))
    return [f"{name}: {', '.join(files)}" for name, files in places.items() if len(files) > 1]


def files_that_know_python(root: Path) -> list[str]:
    names = ("pybind11", "Python.h")
    return [path.name for path in cpp_files(root) if any(name in path.read_text(encoding="utf-8") for name in names)]


def init_files_that_do_something(root: Path) -> list[str]:
    """All but those of docstring, imports, and assignments of plain values to dunder names.

    The package's own is the library's face: it finds public names when they are asked for.
    """
    found = []
    for path in python_files(root):
        if path.name != "__init__.py" or path == root / "fedlearn" / "__init__.py":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            is_plain = (
                isinstance(node, ast.Assign)
                and all(isinstance(t, ast.Name) and t.id.startswith("__") for t in node.targets)
                and isinstance(node.value, ast.List | ast.Tuple | ast.Constant)
            )
            if not (is_docstring or is_plain or isinstance(node, ast.Import | ast.ImportFrom)):
                found.append(f"{path.relative_to(root)}:{node.lineno}")
    return found


def imported_at_the_top(path: Path) -> set[str]:
    """Packages that a file imports as soon as it is imported itself."""
    packages: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            packages.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            packages.add(node.module.split(".")[0])
    return packages


def torch_at_the_top_of_environments(root: Path) -> list[str]:
    """Policies need no torch unless they are modules."""
    files = python_files(root, ("fedlearn/tasks/environment",))
    return [str(path.relative_to(root)) for path in files if "torch" in imported_at_the_top(path)]


def torch_outside_its_rooms(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}: {module}"
        for path in python_files(root, ("fedlearn",))
        if not path.relative_to(root).as_posix().startswith(TORCH_PLACES)
        for module in sorted(imported_modules(root, path))
        if module.split(".")[0] in ("torch", "transformers", "gymnasium")
    ]


def systems_outside_their_room(root: Path) -> list[str]:
    found = []
    for path in python_files(root, ("fedlearn", "server.py", "client.py")):
        if part_of(module_name(root, path)) == "system":
            continue
        names = {module for module in imported_modules(root, path) if module.split(".")[0] in SYSTEM_MODULES}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names |= {f"{node.value.id}.{node.attr}"} if node.attr in SYSTEM_NAMES.get(node.value.id, ()) else set()
            elif isinstance(node, ast.ImportFrom) and node.module in SYSTEM_NAMES:
                taken = {alias.name for alias in node.names} & set(SYSTEM_NAMES[node.module])
                names |= {f"{node.module}.{name}" for name in taken}
        found += [f"{path.relative_to(root)}: {name}" for name in sorted(names)]
    return found


def children_started_otherwise(root: Path) -> list[str]:
    """Command lines of this Python that `program` of fedlearn/system/processes.py did not make."""
    return [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in python_files(root, ("fedlearn",))
        if path != root / "fedlearn" / "system" / "processes.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.List | ast.Tuple)
        and any(ast.unparse(element) == "sys.executable" for element in node.elts)
    ]


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
        ("fedlearn/wire/encoding/codec.py", "import fedlearn.coordination.plan", "fedlearn.coordination.plan"),
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
