"""`--mesh crews=C,shards=S`: how many crews of a run, and in how many shards each cuts a vocabulary."""

import argparse
import re


class Mesh(argparse.Action):
    """Says three settings at once."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 (argparse's own)
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        found = re.fullmatch(r"crews=(\d+),shards=(\d+)", str(values))
        crews, shards = (int(found[1]), int(found[2])) if found is not None else (0, 0)
        if crews < 1 or shards < 1:
            raise argparse.ArgumentError(self, f"expected crews=C,shards=S such as crews=2,shards=2, got {values!r}")
        namespace.seats = namespace.shards = str(shards)
        namespace.volunteers = str(crews * shards)
