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

    def is_known(self, leg: int, n_members: int) -> bool:
        """Whether the messages of a leg are all that there are for so many members. What goes straight from seat to
        seat may be with the last one, and its losses here, before the server is told of it."""
        return sum(said.n_members for said in self.sent[leg]) == n_members

    def is_whole(self, n_members: int) -> bool:
        """Whether everything that the seats received and sent of so many members is known."""
        return all(self.is_known(leg, n_members) for leg in range(len(self.sent))) and all(
            said.payload for sent in self.sent for said in sent
        )
