"""Schemas to read settings by: a kind's own few keys, and those of the RNN, as runs of earlier versions have them."""

import argparse
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
import pytest

from fedlearn.config import ConfigError, Schema, add_config_flags, load_config, setting
from fedlearn.tasks.rnn.options import RnnOptions

Parse = Callable[..., dict[str, object]]


class SomeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A kind with three settings."""

    width: Annotated[int, setting("units", ge=0, le=64, automatic=True)] = 0
    shape: Annotated[Literal["round", "square"], setting("of all units", resumable=True)] = "round"
    note: Annotated[str, setting("whatever comes to mind", min_length=1)] = "none"


@pytest.fixture
def schema() -> Schema:
    return Schema(SomeOptions)


@pytest.fixture
def rnn_schema() -> Schema:
    return Schema(RnnOptions)


@pytest.fixture
def parse(rnn_schema: Schema) -> Parse:
    """Flags as a command finds them, with one of its own."""

    def parsed(*arguments: str) -> dict[str, object]:
        parser = argparse.ArgumentParser()
        parser.add_argument("--resume")
        add_config_flags(parser, rnn_schema)
        return vars(parser.parse_args(arguments))

    return parsed


@pytest.fixture
def refusal(rnn_schema: Schema, parse: Parse) -> Callable[..., str]:
    """What is said of settings that a run cannot have: a TOML text, variables, flags."""

    def refused(toml: str = "", environ: dict[str, str] | None = None, *flags: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load_config(rnn_schema, ("run.toml", toml), environ or {}, parse(*flags))
        return str(caught.value)

    return refused
