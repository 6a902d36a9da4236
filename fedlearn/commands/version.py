"""`fedlearn --version`: which version this is, and which protocol it speaks."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn, final


@final
class ShowVersion(argparse.Action):
    """Looks the versions up when they are asked for: that takes longer than all other arguments together."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> NoReturn:
        del namespace, values, option_string
        from importlib import metadata

        from fedlearn.wire.messages import PROTOCOL_VERSION

        print(f"fedlearn {metadata.version('fedlearn')}, protocol {PROTOCOL_VERSION}")
        parser.exit()
