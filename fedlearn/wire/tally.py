"""Counts the bytes on connections by kind of message, over any number of connections."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import final

from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import Update
from fedlearn.wire.messages import Activations, DataBlock, Result, Start
from fedlearn.wire.states import MessageType

KINDS: Mapping[str, tuple[MessageType, ...]] = MappingProxyType(
    {
        "weights": (Snapshot, Start),
        "updates": (Update,),
        "blocks": (DataBlock,),
        "activations": (Activations,),
        "losses": (Result,),
    }
)
OTHERS = "all else"
_KIND_OF = {kind.__struct_config__.tag: name for name, kinds in KINDS.items() for kind in kinds}

Kinds = dict[str, tuple[int, int]]
"""Bytes in and out by kind of message, frames included."""


@final
class Tally:
    """Counts bytes of whole frames, from its creation on."""

    def __init__(self) -> None:
        self._received: dict[int, int] = {}
        self._sent: dict[int, int] = {}

    def receive(self, tag: int, n_bytes: int) -> None:
        """Counts a frame that came, of a message with this tag."""
        self._received[tag] = self._received.get(tag, 0) + n_bytes

    def send(self, tag: int, n_bytes: int) -> None:
        """Counts a frame that left, of a message with this tag."""
        self._sent[tag] = self._sent.get(tag, 0) + n_bytes

    @property
    def kinds(self) -> Kinds:
        """Bytes by kind, for the kinds that there were."""
        found: Kinds = {}
        for tag in self._received.keys() | self._sent.keys():
            name = _KIND_OF.get(tag, OTHERS)
            n_in, n_out = found.get(name, (0, 0))
            found[name] = (n_in + self._received.get(tag, 0), n_out + self._sent.get(tag, 0))
        return found


def grown(before: Kinds, after: Kinds) -> Kinds:
    """The bytes that came and left between two counts of a tally."""
    changes = {name: (n_in, n_out, *before.get(name, (0, 0))) for name, (n_in, n_out) in after.items()}
    return {name: (n_in - i, n_out - o) for name, (n_in, n_out, i, o) in changes.items() if (n_in, n_out) != (i, o)}
