import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fedlearn.data.sources import open_source
from tests.tasks.followed import Followed


class Rows:
    """What the library gives, of columns by name."""

    dataset_size = None

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns
        self.info = SimpleNamespace(dataset_size=321)
        kinds = {name: "string" if isinstance(column[0], str) else "int64" for name, column in columns.items()}
        self.features = {name: SimpleNamespace(dtype=kind) for name, kind in kinds.items()}

    def select_columns(self, names: list[str]) -> "Rows":
        return Rows({name: self._columns[name] for name in names})

    def iter(self, batch_size: int) -> Iterator[dict[str, list[Any]]]:
        for start in range(0, len(next(iter(self._columns.values()))), batch_size):
            yield {name: column[start : start + batch_size] for name, column in self._columns.items()}


def install(monkeypatch: pytest.MonkeyPatch, columns: dict[str, list[Any]]) -> None:
    def load_dataset(name: str, split: str) -> Rows:
        if (name, split) != ("some/thing", "train"):
            raise FileNotFoundError(f"no {name}")
        return Rows(columns)

    library = ModuleType("datasets")
    library.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", library)


def texts_of(name: str) -> list[str]:
    return ["".join(text) for text in open_source([name], "utf-8").texts(lambda _: None)]


def test_each_row_is_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"id": [1, 2, 3, 4], "text": ["one", "two\r\nlines", None, "\udc80"], "label": ["a"] * 4})
    assert texts_of("hf:some/thing") == ["one", "two\nlines", "?"]
    assert texts_of("hf:some/thing:label") == ["a"] * 4
    followed = Followed()
    assert open_source(["hf:some/thing"], "utf-8", progress=followed).size_bytes == 321
    assert followed.pieces == ["loading hf:some/thing"]


def test_many_rows_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"row {number}" for number in range(600)]
    install(monkeypatch, {"story": rows, "n": list(range(600))})
    assert texts_of("hf:some/thing") == rows


@pytest.mark.parametrize(
    ("columns", "name"),
    [({"a": ["x"], "b": ["y"]}, ""), ({"a": ["x"], "b": ["y"]}, ":c"), ({"n": [1], "a": ["x"]}, ":n")],
)
def test_column_that_is_not_clear_or_no_text_is_refused(
    monkeypatch: pytest.MonkeyPatch, columns: dict[str, list[Any]], name: str
) -> None:
    install(monkeypatch, columns)
    with pytest.raises(ValueError, match=rf"expected hf:NAME:COLUMN, got hf:some/thing{name}; its columns .* are a"):
        texts_of(f"hf:some/thing{name}")


def test_data_set_that_can_not_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"text": ["x"]})
    with pytest.raises(ValueError, match="expected a data set with a split 'train', got hf:other: no other"):
        texts_of("hf:other")


def test_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"hf:x needs the datasets library, .* pip install 'fedlearn\[datasets\]'"):
        texts_of("hf:x")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_local_folder_of_json_lines_is_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("datasets", reason="the extra datasets is not installed")
    (tmp_path / "set").mkdir()
    lines = [json.dumps({"id": number, "text": f"Row {number}\nsays hello."}) for number in range(5)]
    (tmp_path / "set" / "train.jsonl").write_text("\n".join(lines))
    source = open_source([f"hf:{tmp_path / 'set'}"], "utf-8")
    told: list[int] = []
    assert ["".join(text) for text in source.texts(told.append)] == [f"Row {n}\nsays hello." for n in range(5)]
    assert sum(told) == 5 * len("Row 0\nsays hello.")
