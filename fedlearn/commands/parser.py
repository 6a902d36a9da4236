"""Command lines that answer a mistake in a line, and show first what people look for first."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, final

from fedlearn.config.nearest import did_you_mean
from fedlearn.terminal.wrapping import columns_of, wrapped

_FEW = 16
"""Choices that a line may list."""


@final
class Parser(argparse.ArgumentParser):
    """Like its base; `--help` leaves out flags that are hidden, `--help-all` shows them too."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 (those of the base)
        super().__init__(**options, add_help=False)
        self._hidden: set[str] = set()
        self._complete: Callable[[Parser], object] | None = None
        self.register("type", int, _whole_number)
        self.register("type", float, _number)
        self.add_argument("-h", "--help", action="help", help="show this and exit")

    def complete_with(self, complete: Callable[["Parser"], object]) -> None:
        """What adds the arguments, once this parser is the one that parses: that of a verb nobody named never does."""
        self._complete = complete

    def hide(self, names: Iterable[str]) -> None:
        """Leaves flags out of `--help`, by their names in the namespace."""
        if not self._hidden:
            self.usage = "%(prog)s [CONFIG] [flags]"
            self.show("--help-all", self._help_of_all, "show all flags and exit")
        self._hidden.update(names)

    def add_verbs(self, groups: Mapping[str, Iterable[tuple[str, str]]], *, noun: str) -> dict[str, "Parser"]:
        """A parser for each verb; `groups` are headings, below which verbs stand with what they do."""
        verbs = self.add_subparsers(required=True, metavar=noun.upper(), dest=noun)
        self.usage = f"%(prog)s {noun.upper()} ..."
        self._hidden.add(noun)  # the groups below show it
        parsers: dict[str, Parser] = {}
        for heading, group in groups.items():
            shown = self.add_argument_group(heading)
            for name, description in group:
                parsers[name] = verbs.add_parser(name, description=description)
                # It is shown like an argument, and parses nothing.
                shown._group_actions.append(argparse.Action([], dest=name, metavar=name, help=description))
        return parsers

    def show(self, flag: str, text: Callable[[], str], help_text: str) -> None:
        """Adds a flag that shows a text, which is made when it is asked for."""
        self.add_argument(flag, action=partial(_Show, text), nargs=0, help=help_text)  # type: ignore[arg-type]

    def parse_known_args(  # type: ignore[override]  # (one signature for the base's three)
        self,
        args: Sequence[str] | None = None,
        namespace: Any = None,  # noqa: ANN401 (any object)
    ) -> tuple[Any, list[str]]:
        complete, self._complete = self._complete, None
        if complete is not None:
            complete(self)
        return super().parse_known_args(args, namespace)

    def _help_of_all(self) -> str:
        self._hidden.clear()
        return self.format_help()

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._shown(self._actions), [])
        formatter.add_text(self.description)
        for group in self._action_groups:
            if shown := self._shown(group._group_actions):
                formatter.start_section(group.title)
                formatter.add_text(group.description)
                formatter.add_arguments(shown)
                formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        if (missing := message.removeprefix("the following arguments are required: ")) != message:
            message = f"expected {missing}, got none"
        elif found := re.fullmatch("one of the arguments (.*) is required", message):
            message = f"expected one of {', '.join(found[1].split())}, got none"
        remedy = "" if message.endswith("?") else f"; {self.prog} --help shows what there is"
        self.exit(2, wrapped(f"{self.prog}: {message}{remedy}", columns_of(sys.stderr)) + "\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401 (of any type)
        if action.choices is None or value in action.choices:
            return
        choices = [*map(str, action.choices)]
        is_verb = isinstance(action, argparse._SubParsersAction)
        expected = f"one of {', '.join(choices)}" if len(choices) <= _FEW else f"a {action.metavar}"
        wrong = f"expected {expected}, got {value!r}; {did_you_mean(str(value), choices)}".removesuffix("; ")
        raise argparse.ArgumentError(None if is_verb else action, wrong)

    def _shown(self, actions: Iterable[argparse.Action]) -> list[argparse.Action]:
        return [action for action in actions if action.dest not in self._hidden]


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


@final
class _Show(argparse.Action):
    def __init__(self, text: Callable[[], str], **options: Any) -> None:  # noqa: ANN401 (those of the base)
        super().__init__(**options)
        self._text = text

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401
        parser._print_message(f"{self._text().rstrip()}\n", sys.stdout)  # whoever reads may stop early
        parser.exit()
