"""The notebook, cell after cell, without Jupyter."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_hour.ipynb"
SECONDS = "SECONDS = 60"


def code_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells), "a notebook is kept without what it printed"
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> Any:  # noqa: ANN401 (what a cell ends with)
    """What a notebook would show of it: its last expression."""
    *statements, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        exec(source, names)
        return None
    exec(compile(ast.Module(statements, []), str(NOTEBOOK), "exec"), names)
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


def test_cells_run_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    assert code_cells()[0].endswith(SECONDS)
    shown = [run_cell(source.replace(SECONDS, "SECONDS = 1"), names) for source in code_cells()]
    assert capsys.readouterr().out.startswith("The ")
    assert names["run"].step > 0
    assert names["again"].folder.resolve() == names["run"].folder.resolve()
    assert names["found"].fun < 0.1
    assert len(shown[-1]) == 4
    assert shown[4]._repr_png_().startswith(b"\x89PNG")


def test_each_cell_is_short() -> None:
    assert max(len(source.splitlines()) for source in code_cells()) <= 12
