"""What users bring: whether functions take what they will be given, values by name, and the line that brought them."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

Value = TypeVar("Value")

_OF_OUTPUTS = ["input", "target"]
"""The first parameters of PyTorch's own losses, which compare a model's outputs with targets."""

_MOST_CHARACTERS = 60


def check_takes(what: str, function: object, *arguments: str) -> None:
    """Checks that a function can be called with positional arguments of these names.

    Raises:
        ValueError: it can't be called, or takes other arguments.
    """
    expected = f"{what}: expected a function of {_in_words(arguments)}"
    if not callable(function):
        raise ValueError(f"{expected}, got {type(function).__name__}; give the function itself, not what it returns")
    forward = None if inspect.isclass(function) else getattr(function, "forward", None)  # that of a module
    try:
        signature = inspect.signature(forward or function)
    except (TypeError, ValueError):
        return  # it is written in C
    taken = list(signature.parameters)
    name = getattr(function, "__name__", type(function).__name__)
    if arguments == ("model", "rows") and taken[:2] == _OF_OUTPUTS:
        raise ValueError(
            f"{expected}, got {name}, a function of outputs and targets; call it from one, such as "
            "lambda model, rows: loss(model(rows['x']), rows['y'])"
        )
    try:
        signature.bind(*arguments)
    except TypeError as error:
        others = ", or give it the others with functools.partial" if "missing" in str(error) else ""
        received = f"{name}({_shortened(', '.join(taken))})"
        raise ValueError(f"{expected}, got {received}: {error}; let it take {_in_words(arguments)}{others}") from None


def named_values(what: str, given: Mapping[str, Value] | None) -> Mapping[str, Value]:
    """The values by name that somebody gave; none where that is None.

    Raises:
        ValueError: it is no mapping.
    """
    received: object = {} if given is None else given
    if not isinstance(received, Mapping):
        raise ValueError(f"{what}: expected a dictionary of values by name, got {received!r}; write {{name: value}}")
    return received


def _in_words(arguments: Sequence[str]) -> str:
    return f"({', '.join(arguments)})" if arguments else "no arguments"


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


class SourceLine(NamedTuple):
    """A line of a user's own file."""

    filename: str
    number: int

    def warn(self, text: str) -> None:
        """Warns of what a function gave that this line brought; the line is shown with the warning."""
        warnings.warn_explicit(text, RuntimeWarning, self.filename, self.number)


def calling_line() -> SourceLine:
    """The line outside of fedlearn that called it."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "fedlearn":
        frame = frame.f_back
    return SourceLine("fedlearn", 0) if frame is None else SourceLine(frame.f_code.co_filename, frame.f_lineno)
