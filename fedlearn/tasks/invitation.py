"""The description of its task that a server sends to those who join; it holds data and no code."""

from typing import Annotated

import msgspec
from msgspec import Meta

Option = str | int | float | bool
Text = Annotated[str, Meta(max_length=4096)]


class Invitation(msgspec.Struct, frozen=True, array_like=True):
    """The kind of a task, the data that its objective is built from, and hashes that must agree on both sides."""

    kind: Annotated[str, Meta(max_length=64)]
    """The name under which the kind is registered."""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    """The seed of the run's noise and rows."""
    options: Annotated[dict[Text, Option], Meta(max_length=64)]
    """The options that the objective is built from."""
    identity: Annotated[dict[Text, Text], Meta(max_length=16)]
    """Hashes by the name of what was hashed, which a volunteer compares with its own."""
    attachment: bytes = b""
    """Any other data that the kind needs, such as a graph."""
