from typing import Annotated

import msgspec
import pytest

from fedlearn.config import ConfigError, setting
from fedlearn.config.setting import keys_with


class Group(msgspec.Struct):
    plain: Annotated[int, setting("a number", ge=1, le=9)] = 1
    chosen: Annotated[int, setting("another", ge=0, le=9, automatic=True)] = 0
    free: Annotated[float, setting("a third", ge=0, le=9, resumable=True)] = 0.0
    both: Annotated[float, setting("a fourth", ge=0, le=9, automatic=True, resumable=True)] = 0.0
    foreign: int = 0


def test_marks_of_a_setting_are_found_again() -> None:
    assert keys_with(Group, "automatic") == ("chosen", "both")
    assert keys_with(Group, "resumable") == ("free", "both")


def test_help_of_an_automatic_setting_says_who_chooses() -> None:
    assert setting("units", automatic=True).description == "units; chosen when the run begins, unless it is given"
    assert setting("units").description == "units"


def test_bounds_hold_for_what_is_converted() -> None:
    assert msgspec.convert({"plain": 9}, Group).plain == 9
    for wrong in (0, 10):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"plain": wrong}, Group)


def test_a_wrong_setting_is_a_wrong_value() -> None:
    assert issubclass(ConfigError, ValueError)
