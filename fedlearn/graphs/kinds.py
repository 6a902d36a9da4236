"""Kinds of arguments of operators, written as `Tensor?[]` or `Count[]`.

`?` after a kind allows None. `[]` makes a list of it, and may be followed by `?` as well.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from fedlearn.graphs.graph import MAX_DIMENSIONS, Dtype, NonFinite, Value

MAX_ITEMS = 4096
"""The most elements of a list; an unrolled recurrent network stacks as many steps."""

_EQUATION = re.compile(r"[A-Za-z,.> -]{1,200}")


def _is_integer_in(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


_BASES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "Tensor": ("an earlier value", lambda value: isinstance(value, Value)),
    "Dim": (
        f"an integer from {-MAX_DIMENSIONS} to {MAX_DIMENSIONS}", _is_integer_in(-MAX_DIMENSIONS, MAX_DIMENSIONS)
    ),
    "Int": ("an integer of 64 bits", _is_integer_in(-(2**63), 2**63 - 1)),
    # Zero as a stride, a group or a size of pieces ends some kernels with a division by zero.
    "Count": ("an integer from 1 to 2^31 - 1", _is_integer_in(1, 2**31 - 1)),
    "Offset": ("an integer from 0 to 2^31 - 1", _is_integer_in(0, 2**31 - 1)),
    "Extent": ("an integer from -1 to 2^48", _is_integer_in(-1, 2**48)),
    "Reduction": ("0, 1 or 2", _is_integer_in(0, 2)),
    "Bool": ("true or false", lambda value: isinstance(value, bool)),
    "Float": ("a number with a point", lambda value: isinstance(value, float | NonFinite)),
    "Number": (
        "a number",
        lambda value: isinstance(value, bool | float | NonFinite) or _is_integer_in(-(2**63), 2**63 - 1)(value),
    ),
    # Devices differ in the number of steps that they find between larger numbers.
    "Place": (
        "a number from -2^48 to 2^48",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2**48,
    ),
    "Dtype": ("a dtype", lambda value: isinstance(value, Dtype)),
    "Equation": (
        "an equation of einsum", lambda value: isinstance(value, str) and _EQUATION.fullmatch(value) is not None
    ),
}  # fmt: skip


class ArgumentKind(Struct, frozen=True):
    """The values that one argument may have."""

    base: str
    """A name from the table above, or `word(a,b)` for one of several words."""
    item_may_be_none: bool
    is_list: bool
    may_be_none: bool

    @property
    def expected(self) -> str:
        """The kind in words, for errors."""
        one = f"one of {', '.join(_words(self.base))}" if self.base.startswith("word(") else _BASES[self.base][0]
        whole = f"at most {MAX_ITEMS} times {one}" if self.is_list else one
        return f"{whole} or nothing" if self.may_be_none or self.item_may_be_none else whole

    def accepts(self, value: object) -> bool:
        """Whether the value is of this kind."""
        if value is None:
            return self.may_be_none
        if not self.is_list:
            return self._accepts_one(value)
        if not isinstance(value, tuple) or len(value) > MAX_ITEMS:
            return False
        return all(self.item_may_be_none if item is None else self._accepts_one(item) for item in value)

    def _accepts_one(self, value: object) -> bool:
        if self.base.startswith("word("):
            return value in _words(self.base)
        return _BASES[self.base][1](value)


def parse_kind(text: str) -> ArgumentKind:
    """The kind that a text describes."""
    rest, is_optional = text.removesuffix("?"), text.endswith("?")
    if not rest.endswith("[]"):
        return _known(ArgumentKind(rest, item_may_be_none=False, is_list=False, may_be_none=is_optional))
    item = rest.removesuffix("[]")
    return _known(ArgumentKind(item.removesuffix("?"), item.endswith("?"), is_list=True, may_be_none=is_optional))


def _known(kind: ArgumentKind) -> ArgumentKind:
    if kind.base not in _BASES and not kind.base.startswith("word("):
        raise ValueError(f"kind: expected one of {', '.join(_BASES)} or word(...), got {kind.base!r}")
    return kind


def _words(base: str) -> tuple[str, ...]:
    return tuple(base.removeprefix("word(").removesuffix(")").split(","))
