"""All keys of a run: those that every run has, and those of its task's kind."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, final

import msgspec
from msgspec.inspect import BoolType, FloatType, IntType, LiteralType, Metadata, Type, VarTupleType, type_info

from fedlearn.config.run_config import RunConfig
from fedlearn.config.setting import ConfigError, Mark, keys_with
from fedlearn.es.optimizers import OPTIMIZERS, defaults, optimizer_name

OPTIONS = "options"
"""Name of the group that holds the keys of the task's kind."""

GROUPS = {
    field.name: field.type
    for field in msgspec.structs.fields(RunConfig)
    if isinstance(field.type, type) and field.name != OPTIONS
}
"""Struct of each group that every run has, by its name."""


@final
class Schema:
    """Keys with their groups, types, ranges and help, for runs whose task has these options."""

    def __init__(self, options: type[msgspec.Struct]) -> None:
        self.groups: dict[str, type[msgspec.Struct]] = {**GROUPS, OPTIONS: options}
        self.group_of: dict[str, str] = {}
        self.fields: dict[str, msgspec.structs.FieldInfo] = {}
        for name, group in self.groups.items():
            for field in msgspec.structs.fields(group):
                assert field.name not in self.fields, f"{field.name} stands in two groups"
                self.group_of[field.name] = name
                self.fields[field.name] = field

    @cached_property
    def automatic(self) -> tuple[str, ...]:
        """Keys for which 0 or `auto` means that the value is chosen when the run begins."""
        return tuple(self._with("automatic"))

    @cached_property
    def resumable(self) -> frozenset[str]:
        """Keys that a resumed run may change."""
        return frozenset(self._with("resumable"))

    @cached_property
    def of_start(self) -> frozenset[str]:
        """Keys that are said anew at each start of a server; a resumed run may change them, too."""
        return frozenset(self._with("of_start"))

    @cached_property
    def advanced(self) -> frozenset[str]:
        """Keys that few people change."""
        return frozenset(self.fields).difference(self._with("common"))

    def _with(self, mark: Mark) -> Iterator[str]:
        return (key for group in self.groups.values() for key in keys_with(group, mark))

    def build(self, values: dict[str, Any]) -> RunConfig:
        """The configuration with these values of keys, the others at their defaults; ranges are not checked here.

        The defaults of hyperparameters are those of the optimizer.
        """
        usual = RunConfig(options=self.groups[OPTIONS]())
        own = defaults(OPTIMIZERS[optimizer_name(values.get("optimizer", usual.optimizer.optimizer))])
        return usual.replace({**own, **values})

    def checked(self, key: str, value: object, source: str, *, strict: bool) -> Any:  # noqa: ANN401
        """The value in its key's type; unless strict, text becomes a number where a number is expected.

        Raises:
            ConfigError: the type or the range is wrong; the message names the source.
        """
        try:
            converted = msgspec.convert(self._read(key, value, strict=strict), self.fields[key].type, strict=strict)
        except ValueError:
            converted = None
        choices = self.choices_of(key)
        if converted is None or (choices and converted not in choices):
            raise ConfigError(f"{key}: expected {self._expectation(key)}, got {value!r} from {source}")
        return converted

    def _read(self, key: str, value: object, *, strict: bool) -> object:
        """The value, converted where msgspec does not read the text of a flag or variable.

        Raises:
            ValueError: a number is expected, and the text is none.
        """
        if isinstance(value, str) and isinstance(self.type_of(key), VarTupleType):
            return [value]  # where there is one, it needs no list
        if isinstance(value, float) and value.is_integer() and isinstance(self.type_of(key), IntType):
            return int(value)  # as Python writes 1e9 to JSON
        # Whatever Python reads as a number is one: msgspec wants JSON's.
        is_number = not strict and isinstance(value, str) and isinstance(self.type_of(key), FloatType)
        return float(str(value)) if is_number else value

    def choices_of(self, key: str) -> tuple[Any, ...]:
        """All values that a key may have; empty where they are not a fixed list."""
        described = self._described(key)
        if isinstance(described.type, LiteralType):
            return described.type.values
        registered: tuple[Any, ...] = (described.extra or {})["choices"]
        return registered

    def type_of(self, key: str) -> Type:
        """The type of a key's values."""
        return self._described(key).type

    def help_of(self, key: str) -> str:
        """The key's description."""
        extra = self._described(key).extra_json_schema or {}
        return str(extra["description"])

    def _described(self, key: str) -> Metadata:
        described = type_info(self.fields[key].type)
        assert isinstance(described, Metadata), f"{key} lacks its setting(...)"
        return described

    def _expectation(self, key: str) -> str:
        if choices := self.choices_of(key):
            return f"one of {', '.join(map(str, choices))}"
        kind = self.type_of(key)
        match kind:
            case BoolType():
                return "true or false"
            case IntType() | FloatType():
                noun = "a whole number" if isinstance(kind, IntType) else "a number"
                bounds = {"at least": kind.ge, "above": kind.gt, "at most": kind.le, "below": kind.lt}
                limits = [f"{words} {bound}" for words, bound in bounds.items() if bound is not None]
                return f"{noun}, {' and '.join(limits)}"
            case VarTupleType():
                return "texts that are not empty"
            case _:
                return "text that is not empty"
