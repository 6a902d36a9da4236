import re

from fedlearn.coordination.steps.report import FIGURES, StepReport
from tests.docs.pages import REPOSITORY

THROUGH = (
    "board",
    "callback.py",
    "commands",
    "hub",
    "library",
    "relay",
    "runs",
    "server",
    "simulation",
    "storage",
    "terminal",
)
"""What a figure goes through on its way from the step's closing to people's eyes."""


def test_figures_are_those_that_were_measured() -> None:
    report = StepReport(step=7, loss=None, members=16, volunteers=2)
    assert report.figures == {}
    assert StepReport(step=7, loss=1.0, members=16, volunteers=2, variance_left=0.0).figures == {"variance_left": 0.0}


def test_no_figure_is_named_on_its_way_to_those_who_draw_it() -> None:
    names = re.compile(rf"\b({'|'.join(FIGURES)})\b")
    paths = [REPOSITORY / "fedlearn" / place for place in THROUGH]
    sources = [file for path in paths for file in (path.rglob("*.*") if path.is_dir() else [path])]
    texts = {file: file.read_text(encoding="utf-8") for file in sources if file.suffix in (".py", ".js")}
    assert len(texts) > len(THROUGH)
    assert [str(file) for file, text in texts.items() if names.search(text)] == []
