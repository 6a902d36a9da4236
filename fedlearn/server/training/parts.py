"""Parts of the server's replica, for the seats of crews."""

from collections.abc import Sequence
from typing import final

from fedlearn.coordination.crews.crew_plan import Tensors
from fedlearn.es.layout import ParameterLayout
from fedlearn.server.training.recent import Outgoing
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.parts.layout import part_layout
from fedlearn.wire.encoding.parcel import pack


@final
class ReplicaParts:
    """Messages and digests of parts of a replica."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._layouts: dict[Tensors, ParameterLayout] = {}
        """Layouts of the parts that were asked for: the same ones are digested in every step."""

    def message(self, tensors: Tensors) -> Outgoing:
        """The message that brings a seat with these tensors to where the replica is."""
        replica = self._holding.replica
        layout = self._layout_of(tensors)
        snapshot = replica.snapshot(layout).condensed(layout)
        return snapshot, pack(snapshot)

    def digests(self, parts: Sequence[Tensors]) -> tuple[int, dict[Tensors, bytes]]:
        """The step that the replica stands before, and the digests of some parts of it."""
        replica = self._holding.replica
        digests = replica.digests([self._layout_of(tensors) for tensors in parts])
        return replica.step, dict(zip(parts, digests, strict=True))

    def _layout_of(self, tensors: Tensors) -> ParameterLayout:
        if tensors not in self._layouts:
            self._layouts[tensors] = part_layout(self._holding.replica.layout, tensors)
        return self._layouts[tensors]
