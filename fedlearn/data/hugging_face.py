"""Texts of a data set of the hub or of a local folder, read by the `datasets` library (an extra)."""

import importlib
from collections.abc import Callable
from typing import Any, final

from fedlearn.data.decoding import as_text
from fedlearn.data.rows import choose_column
from fedlearn.text.source import Progress, Texts

PREFIX = "hf:"
BATCH_ROWS = 256

_TEXT_TYPES = ("string", "large_string")


@final
class DataSetTexts:
    """Each row of the training split is a text."""

    def __init__(self, name: str, progress: Progress) -> None:
        """`name` is hf:NAME or hf:NAME:COLUMN.

        Raises:
            ValueError: there is no such data set, or it cannot be read.
        """
        self.name = name
        progress.begin(f"loading {name}")
        dataset, _, column = name.removeprefix(PREFIX).partition(":")
        self._rows = _load(dataset)
        self._column = _column(self._rows, column, name)
        self.size_bytes = int(self._rows.dataset_size or self._rows.info.dataset_size or 0)

    def texts(self, read: Callable[[int], None]) -> Texts:
        for batch in self._rows.select_columns([self._column]).iter(batch_size=BATCH_ROWS):
            for text in batch[self._column]:
                if text:
                    read(len(text.encode(errors="replace")))
                    yield iter([as_text(text)])


def _load(name: str) -> Any:  # noqa: ANN401 (the library's class, absent without the extra)
    try:
        library = importlib.import_module("datasets")
    except ImportError as error:
        raise ValueError(
            f"data: {PREFIX}{name} needs the datasets library, which is not installed; "
            "run pip install 'fedlearn[datasets]'"
        ) from error
    try:
        return library.load_dataset(name, split="train")
    except Exception as error:  # the library's own errors, of the network and of files have no common class
        raise ValueError(
            f"data: expected a data set with a split 'train', got {PREFIX}{name}: {error}; "
            "check its name, or give a file"
        ) from error


def _column(rows: Any, wanted: str, given: str) -> str:  # noqa: ANN401
    columns = [name for name, kind in rows.features.items() if getattr(kind, "dtype", "") in _TEXT_TYPES]
    return choose_column(columns, wanted, expected=f"{PREFIX}NAME:COLUMN", given=given)
