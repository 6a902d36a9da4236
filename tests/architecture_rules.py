"""The rules of the design that can be read off the sources: who imports whom, purity, and the size of files."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]

LAYERS = (
    ("es_core", "system"),
    ("es", "text"),
    ("config", "graphs"),
    ("tasks",),
    ("wire",),
    ("coordination", "net"),
    ("storage",),
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
    "fedlearn/tasks/torch/seeds.py: random",  # losses of users draw by it: it is seeded and put back
    "fedlearn/tasks/torch/members/execution_plans.py: time",  # how long members take; no loss depends on it
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
            names = (f"{base}.{alias.name}" for alias in node.names)
            modules.update(name if is_ours(root, name) else base for name in names)
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
    numbers = Counter(
        path.parent for path in python_files(root, ("fedlearn", "es_core", "benchmarks")) if path.name != "__init__.py"
    )
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


def modules_that_no_test_reaches(root: Path) -> list[str]:
    """Modules without a test file of their own that no test imports, nor a module of their folder that tests reach."""
    paths = {module_name(root, path): path for path in python_files(root, ("fedlearn",)) if path.stem != "__main__"}
    imports = {name: imported_modules(root, path) for name, path in paths.items()}
    found = {module for path in (root / "tests").rglob("*.py") for module in imported_modules(root, path)}
    found |= {name for name, path in paths.items() if test_of(root, path).exists()}
    reached: set[str] = set()
    while found:
        reached |= found
        beside = ((name, other) for name in found & paths.keys() for other in imports[name] & paths.keys())
        found = {other for name, other in beside if paths[name].parent == paths[other].parent} - reached
    return [
        str(path.relative_to(root)) for name, path in paths.items() if name not in reached and "__" not in path.stem
    ]


def test_of(root: Path, path: Path) -> Path:
    return (root / "tests" / path.relative_to(root / "fedlearn")).with_stem(f"test_{path.stem}")


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
