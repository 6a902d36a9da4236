"""The table of a step's figures in docs/runs.md, held against the table that viewers read."""

import re

from fedlearn.coordination.steps.report import FIGURES
from tests.docs.pages import REPOSITORY

TEXT = (REPOSITORY / "docs" / "runs.md").read_text(encoding="utf-8")


def test_page_has_every_figure_as_the_table_describes_it() -> None:
    table = TEXT.partition("| Figure |")[2].partition("\n\n")[0]
    rows = re.findall(r"(?m)^\| `(\w+)` \| ([^|]+) \|", table)
    assert rows == [(name, figure.text) for name, figure in FIGURES.items()]
