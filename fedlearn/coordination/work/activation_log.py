"""The route of a group of members through a crew: what an audit needs to repeat the work of each seat."""

import msgspec

from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.tasks.parts.activations import ActivationCodec
from fedlearn.wire.messages import Activations


class ActivationLog(msgspec.Struct, frozen=True, eq=False):
    """The crew's division of the model, and the activations that its seats sent of the group."""

    cuts: tuple[int, ...]
    shards: int
    wire: ActivationCodec
    batch: int
    """The most members in one message."""
    sent: tuple[tuple[Activations, ...], ...]
    """Activations and cotangents after each leg of the way, in the order of members; without payload where they did not
    pass the server."""
    sums: tuple[CodedEstimate, ...] = ()
    """The sum of each seat's part, where gradients were measured."""

    @property
    def is_whole(self) -> bool:
        """Whether everything that the seats received and sent is known."""
        return all(sent and all(said.payload for said in sent) for sent in self.sent)
