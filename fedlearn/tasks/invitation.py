"""What a server says of its task to whoever joins: data only, nothing to run."""

from typing import Annotated

import msgspec
from msgspec import Meta

Option = str | int | float | bool
Text = Annotated[str, Meta(max_length=4096)]


class Invitation(msgspec.Struct, frozen=True, array_like=True):
    """The kind of task, what its objective is built from, and what must be equal on both sides."""

    kind: Annotated[str, Meta(max_length=64)]
    """Name under which it is registered."""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    """Of the run's noise and rows."""
    options: Annotated[dict[Text, Option], Meta(max_length=64)]
    """What the objective is built from."""
    identity: Annotated[dict[Text, Text], Meta(max_length=16)]
    """Hashes by what they are of; a volunteer compares them with its own."""
    attachment: bytes = b""
    """Whatever else the kind needs, such as a graph."""
