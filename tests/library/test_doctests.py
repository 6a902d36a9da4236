"""The examples in docstrings."""

import doctest
from importlib import import_module

import pytest

MODULES = (
    "fedlearn.library.black_box",
    "fedlearn.library.training",
    "fedlearn.tasks.function.evolution",
    "fedlearn.tasks.function.minimize",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_give_what_they_say(name: str) -> None:
    found = doctest.testmod(import_module(name), raise_on_error=False)
    assert found.attempted > 0
    assert found.failed == 0
