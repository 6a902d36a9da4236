"""What a server tells those who join about its task: data only, no code."""

from typing import Annotated

import msgspec
from msgspec import Meta

Option = str | int | float | bool
Text = Annotated[str, Meta(max_length=4096)]


class Invitation(msgspec.Struct, frozen=True, array_like=True):
    """The kind of a task, what its objective is built from, and what must be the same on both sides."""

    kind: Annotated[str, Meta(max_length=64)]
    """The name under which the kind is registered."""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    """Seed of the run's noise and rows."""
    options: Annotated[dict[Text, Option], Meta(max_length=64)]
    """What the objective is built from."""
    identity: Annotated[dict[Text, Text], Meta(max_length=16)]
    """Hashes, by what they are of, which a volunteer compares with its own."""
    attachment: bytes = b""
    """Anything else that the kind needs, such as a graph."""
