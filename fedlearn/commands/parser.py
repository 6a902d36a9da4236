"""Command lines that answer a mistake in a line, and show first what people look for first."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, final

from fedlearn.terminal.wrapping import columns_of, wrapped


@final
class Parser(argparse.ArgumentParser):
    """Like its base; `--help` leaves out flags that are hidden, `--help-all` shows them too."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 (those of the base)
        super().__init__(**options, add_help=False)
        self._hidden: set[str] = set()
        self._complete: Callable[[Parser], object] | None = None
        self.add_argument("-h", "--help", action="help", help="show this and exit")

    def complete_with(self, complete: Callable[["Parser"], object]) -> None:
        """What adds the arguments, once this parser is the one that parses: that of a verb nobody named never does."""
        self._complete = complete

    def hide(self, names: Iterable[str]) -> None:
        """Leaves flags out of `--help`, by their names in the namespace."""
        if not self._hidden:
            self.usage = "%(prog)s [CONFIG] [flags]"
            self.add_argument("--help-all", action=_ShowAll, nargs=0, help="show all flags and exit")
        self._hidden.update(names)

    def show_all(self) -> None:
        """From now on no flag is hidden."""
        self._hidden.clear()

    def parse_known_args(  # type: ignore[override]  # (one signature for the base's three)
        self,
        args: Sequence[str] | None = None,
        namespace: Any = None,  # noqa: ANN401 (any object)
    ) -> tuple[Any, list[str]]:
        complete, self._complete = self._complete, None
        if complete is not None:
            complete(self)
        return super().parse_known_args(args, namespace)

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
        remedy = "" if message.endswith("?") else f"; {self.prog} --help shows what there is"
        self.exit(2, wrapped(f"{self.prog}: {message}{remedy}", columns_of(sys.stderr)) + "\n")

    def _shown(self, actions: Iterable[argparse.Action]) -> list[argparse.Action]:
        return [action for action in actions if action.dest not in self._hidden]


class _ShowAll(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> NoReturn:
        del namespace, values, option_string
        assert isinstance(parser, Parser), "a flag of another parser"
        parser.show_all()
        parser.print_help()
        parser.exit()
