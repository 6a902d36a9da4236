from collections.abc import Callable
from pathlib import Path

import pytest

KnownAnswers = Callable[[str], list[dict[str, list[str]]]]


@pytest.fixture(scope="session")
def known_answers() -> KnownAnswers:
    """Reads a file of known answers: blocks of `key: values`, wrapped lines indented, `#` begins a comment line."""

    def read(name: str) -> list[dict[str, list[str]]]:
        text = (Path(__file__).parent / "known_answers" / name).read_text(encoding="utf-8")
        answers = []
        for block in text.split("\n\n"):
            lines = [line for line in block.splitlines() if not line.startswith("#")]
            entries = "\n".join(lines).replace("\n ", " ").splitlines()
            answers.append({key: values.split() for key, _, values in (e.partition(":") for e in entries)})
        return [answer for answer in answers if answer]

    return read
