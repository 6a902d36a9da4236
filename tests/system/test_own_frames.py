import numpy as np
import pytest

from fedlearn.system.own_frames import own_lines
from fedlearn.tasks.function import function
from fedlearn.tasks.registry import find_kind


def test_line_of_the_users_code_is_shown_without_those_around_it() -> None:
    def loss(_: object) -> float:
        raise KeyError("no such array")

    task = function(loss, {"x": np.zeros(2)}, covariance=False)
    with pytest.raises(KeyError) as caught:
        task.evaluate(np.zeros(2, dtype=np.float32), threads=1)
    (line,) = own_lines(caught.value)
    assert line.startswith(f"{__file__}, line ")
    assert line.endswith(', in loss: raise KeyError("no such array")')


def test_what_fedlearn_expected_has_no_line_of_the_users() -> None:
    with pytest.raises(ValueError, match="abacus") as caught:
        find_kind("abacus")
    assert own_lines(caught.value) == []
