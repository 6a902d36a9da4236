"""How a group of members went through a crew: what an audit needs to go over what each of its seats did."""

import msgspec

from fedlearn.wire.encoding.activations import ActivationCodec
from fedlearn.wire.messages import Activations


class ActivationLog(msgspec.Struct, frozen=True, eq=False):
    """The crew's division of the model, and what its seats sent of the group."""

    cuts: tuple[int, ...]
    shards: int
    wire: ActivationCodec
    batch: int
    """Members in one message, at most."""
    sent: tuple[tuple[Activations, ...], ...]
    """At each cut, in the order of members; without payload where that did not come through the server."""

    @property
    def is_whole(self) -> bool:
        """Whether it is known what every seat received and sent."""
        return all(sent and all(said.payload for said in sent) for sent in self.sent)
