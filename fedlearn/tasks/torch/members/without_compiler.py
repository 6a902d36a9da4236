"""PyTorch without its compiler, whose import takes longer than all else at a volunteer's start.

PyTorch asks the compiler not to compile some of its own functions, those on tensors without numbers among them, and
imports it for that. Nobody compiles here, so the answer may be given without it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, final

COMPILER = "torch._dynamo"


@final
class _Absent(ModuleType):
    """Answers in place of the compiler; whoever wants anything else of it gets the compiler's own."""

    @staticmethod
    def disable(function: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
        """The function as it is."""
        return function

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the compiler has)
        if sys.modules.get(COMPILER) is self:
            del sys.modules[COMPILER]
        return getattr(import_module(COMPILER), name)


@contextmanager
def without_compiler() -> Iterator[None]:
    """A context in which PyTorch does not import its compiler, unless it is there or needed for more than to refuse."""
    if COMPILER in sys.modules:
        yield
        return
    absent = sys.modules[COMPILER] = _Absent(COMPILER)
    try:
        yield
    finally:
        if sys.modules.get(COMPILER) is absent:
            del sys.modules[COMPILER]
