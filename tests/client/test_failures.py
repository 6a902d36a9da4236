from collections.abc import Callable

import numpy as np
import pytest

from fedlearn.client.failures import in_short
from fedlearn.tasks.function import function
from fedlearn.tasks.registry import find_kind
from fedlearn.wire.errors import RemoteProtocolError


def raised(act: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (any is to be told)
        act()
    assert isinstance(caught.value, Exception)
    return caught.value


def of_loss(error: Exception) -> Exception:
    """The error as it comes out of fedlearn's own code that called a user's loss."""

    def loss(_: object) -> float:
        raise error

    task = function(loss, {"x": np.zeros(2)}, covariance=False)
    return raised(lambda: task.evaluate(np.zeros(2, dtype=np.float32), threads=1))


@pytest.mark.parametrize("error", [KeyError("gone"), ValueError("gone"), MemoryError("gone")])
def test_error_of_users_code_is_told_with_its_kind_and_place(error: Exception) -> None:
    short = in_short(of_loss(error))
    assert short.startswith(f"{type(error).__name__} (test_failures.py, line ")
    assert short.endswith(("gone", "'gone'"))


def test_what_fedlearn_expected_is_told_as_it_is() -> None:
    error = raised(lambda: find_kind("abacus"))
    assert in_short(error) == str(error)
    assert in_short(RemoteProtocolError("expected a Welcome first")) == "expected a Welcome first"


def test_error_without_words_or_of_more_than_a_line_is_one_line() -> None:
    assert in_short(MemoryError()) == "MemoryError"
    assert in_short(ValueError()) == "ValueError"
    assert in_short(ValueError("a\n  b")) == "a b"
