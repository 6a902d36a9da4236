"""Tests that pages name as the proof of what they promise, held against the tests that there are."""

import re

import pytest

from tests.docs.pages import PAGES, REPOSITORY

NAMED = sorted(
    {name for page in PAGES for name in re.findall(r"\btest_\w+\.py(?:::test_\w+)?", page.read_text(encoding="utf-8"))}
)


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_a_page_names_is_there(name: str) -> None:
    file, _, function = name.partition("::")
    found = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob(file)]
    assert any(not function or re.search(rf"^(async )?def {function}\(", text, flags=re.M) for text in found)
