"""What pages say of each optimizer, held against its struct."""

import re

import pytest

from fedlearn.es.optimizers import OPTIMIZERS
from tests.docs.pages import REPOSITORY

DOCS = REPOSITORY / "docs"


def row_of(page: str, first_cell: str) -> list[str]:
    """The cells of the table's only row that begins so."""
    (row,) = re.findall(rf"(?m)^\| {re.escape(first_cell)} \|(.*)\|$", (DOCS / page).read_text(encoding="utf-8"))
    return [cell.strip() for cell in str(row).split("|")]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_protocol_lists_the_elements_of_an_optimizer_in_order(name: str) -> None:
    assert row_of("protocol.md", f'"{name}"') == [", ".join(OPTIMIZERS[name].__struct_fields__)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_configuration_names_the_optimizer(name: str) -> None:
    assert f"`{name}`" in row_of("configuration.md", "`optimizer`")[1]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_design_names_what_the_optimizer_keeps(name: str) -> None:
    optimizer = OPTIMIZERS[name](0.1)
    text = (DOCS / "design" / "arithmetic.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"(?m)^\| {name}(?: with momentum above 0)? \|.*$", text)
    assert re.findall(r"`(\w+)`", row) == [*optimizer.slots, *optimizer.advanced({})]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_design_has_the_arithmetic_of_the_optimizer(name: str) -> None:
    text = (DOCS / "design" / "arithmetic.md").read_text(encoding="utf-8")
    assert len(re.findall(rf"(?m)^{name}: +m = ", text)) == 1
