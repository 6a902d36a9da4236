"""The settings of warnings in pyproject.toml: errors, but for what libraries of others are going to change."""

import warnings
from collections.abc import Callable
from types import ModuleType

import pytest

DEPRECATIONS = [DeprecationWarning, PendingDeprecationWarning, FutureWarning]


def warner(name: str, stacklevel: int) -> Callable[[type[Warning]], None]:
    """A function of a module of that name, which warns of itself (1) or of its caller (2)."""
    module = ModuleType(name)
    vars(module)["warn"] = warnings.warn
    exec(f"def call(category):\n    warn('will change', category, stacklevel={stacklevel})", vars(module))
    called: Callable[[type[Warning]], None] = vars(module)["call"]
    return called


@pytest.mark.parametrize("category", DEPRECATIONS)
def test_a_library_that_will_change_another_one_stops_no_test(category: type[Warning]) -> None:
    warner("transformers.utils", 1)(category)


@pytest.mark.parametrize("category", DEPRECATIONS)
def test_a_call_of_ours_that_will_change_is_an_error(category: type[Warning]) -> None:
    with pytest.raises(category, match="will change"):
        warner("transformers.utils", 2)(category)
    for ours in ("fedlearn.tasks", "es_core", "benchmarks.measure", "examples.digits", "__main__"):
        with pytest.raises(category, match="will change"):
            warner(ours, 1)(category)


@pytest.mark.parametrize("category", [UserWarning, RuntimeWarning, ResourceWarning])
def test_any_other_warning_is_an_error_wherever_it_is_from(category: type[Warning]) -> None:
    with pytest.raises(category, match="will change"):
        warner("transformers.utils", 1)(category)
