"""Texts in rows of JSON Lines and CSV files: a column of them, each row a text."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, final

from fedlearn.data.decoding import as_text
from fedlearn.data.files import FileTexts
from fedlearn.text.documents import MAX_LINE
from fedlearn.text.source import Texts

USUAL_COLUMN = "text"

_NAME = re.compile(r"(?P<path>.+\.(?:jsonl|csv))(?::(?P<column>[^:/\\#]+))?(?P<hash>#.*)?", re.IGNORECASE | re.DOTALL)

Row = Mapping[str, object]


class RowName(NamedTuple):
    """What a user names: files of rows, and which column of them."""

    path: str
    column: str
    """The name of the column; empty if none is named."""


def row_name(name: str) -> RowName | None:
    """The files and the column that FILE.jsonl:COLUMN names; None for a name of other files."""
    match = _NAME.fullmatch(name)
    return None if match is None else RowName(match["path"] + (match["hash"] or ""), match["column"] or "")


def choose_column(columns: list[str], wanted: str, *, expected: str, given: str) -> str:
    """The column that is wanted; where none is, `text`, or the only one of texts.

    Raises:
        ValueError: there is no such column, or several could be meant.
    """
    if not wanted and USUAL_COLUMN in columns:
        return USUAL_COLUMN
    if not wanted and len(columns) == 1:
        return columns[0]
    if wanted in columns:
        return wanted
    raise ValueError(f"data: expected {expected}, got {given}; its columns of text are {', '.join(columns) or 'none'}")


@final
class RowTexts:
    """Each row of each file is a text; rows without one are passed over."""

    def __init__(self, files: FileTexts, column: str) -> None:
        """`column` is empty where `choose_column` chooses."""
        self.name = files.name
        self.size_bytes = files.size_bytes
        self._files = files
        self._column = column

    def texts(self, read: Callable[[int], None]) -> Texts:
        for path in self._files.paths:
            rows = _csv_rows if path.suffix.lower() == ".csv" else _json_rows
            column = ""
            for number, row in rows(path, self._files.text(path, read)):
                column = column or self._column_of(row, path)
                text = row.get(column)
                if not isinstance(text, str | None):
                    raise ValueError(
                        f"data: expected text in the column {column} of {path}, got {json.dumps(text)[:40]} in line "
                        f"{number}; choose another column"
                    )
                if text:
                    yield iter([as_text(text)])

    def _column_of(self, row: Row, path: Path) -> str:
        """The column to read, chosen by a file's first row."""
        given = f"{path}:{self._column}" if self._column else str(path)
        # A null may be a text in other rows.
        names = [name for name, value in row.items() if isinstance(value, str | None) and isinstance(name, str)]
        return choose_column(names, self._column, expected="FILE:COLUMN", given=given)


def _json_rows(path: Path, pieces: Iterator[str]) -> Iterator[tuple[int, Row]]:
    """The rows, each with the number of its line."""
    for number, line in enumerate(_lines(path, pieces), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            row, problem = None, f" ({error})"
        else:
            problem = ""
        if not isinstance(row, dict):
            raise ValueError(
                f"data: expected a JSON object in each line of {path}, got {line.strip()[:40]!r} in line {number}"
                f"{problem}; give the file another name if it is plain text"
            )
        yield number, row


def _csv_rows(path: Path, pieces: Iterator[str]) -> Iterator[tuple[int, Row]]:
    """The rows, each with the number of its last line; the first line names the columns."""
    csv.field_size_limit(MAX_LINE)
    reader = csv.DictReader(_lines(path, pieces))
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"data: expected CSV in {path}, got line {reader.line_num}: {error}; mend it") from error


def _lines(path: Path, pieces: Iterator[str]) -> Iterator[str]:
    """The lines with their ends."""
    begun = ""
    for piece in pieces:
        *lines, begun = (begun + piece).split("\n")
        if len(begun) > MAX_LINE:
            raise ValueError(f"data: expected lines of at most {MAX_LINE} characters, got a longer one in {path}")
        for line in lines:
            yield f"{line}\n"
    if begun:
        yield begun
