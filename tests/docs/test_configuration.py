"""The tables of settings in docs/configuration.md, held against the settings."""

import re

import pytest

from fedlearn.config import Schema
from fedlearn.tasks.registry import find_kind, kind_names
from tests.docs.pages import REPOSITORY

TEXT = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
IN_OTHER_WORDS = {
    "chosen",
    "none",
    "the machine's",
    "the server's own",
    "everybody",
    "256, 128",
}
"""Defaults that the page says in words."""

ROWS = {
    key: default
    for keys, default in re.findall(r"(?m)^\| ((?:`\w+`(?:, )?)+) \| ([^|]+) \|", TEXT)
    for key in re.findall(r"\w+", keys)
}


def defaults() -> dict[str, object]:
    """Of every key of every kind."""
    return {
        key: ", ".join(field.default) if isinstance(field.default, tuple) else field.default
        for name in kind_names()
        for key, field in Schema(find_kind(name).options).fields.items()
    }


def test_page_has_every_key_and_no_other() -> None:
    assert sorted(ROWS) == sorted(defaults())


@pytest.mark.parametrize("key", sorted(ROWS))
def test_page_has_the_default(key: str) -> None:
    shown, default = ROWS[key].strip(), defaults()[key]
    if shown in IN_OTHER_WORDS:
        return
    if isinstance(default, bool):
        assert shown == str(default).lower()
    elif isinstance(default, int | float):
        assert float(shown) == default
    else:
        assert shown == default


def test_page_lists_what_a_resumed_run_keeps() -> None:
    start, kept = (
        set(re.findall(r"`(\w+)`", row.split("|")[2]))
        for row in TEXT.partition("## When a run is resumed")[2].splitlines()
        if row.startswith(("| each start", "| the run's;"))
    )
    schemas = [Schema(find_kind(name).options) for name in kind_names()]
    assert all(start == schema.of_start for schema in schemas)
    assert start | kept == set().union(*(schema.resumable for schema in schemas))
    assert not start & kept
