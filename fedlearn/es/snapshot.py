"""A replica as a value, which checkpoints hold and which is sent to those who join."""

from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from fedlearn.es.digest import DIGEST_BYTES
from fedlearn.es.layout import Float32Array, ParameterLayout

START = "start"
"""Name of the slot with the weights that the run began with, where weight decay pulls towards them, or the run may
begin again."""

MAX_SLOTS = 4
"""The most slots, and the most numbers, of a Snapshot."""

Digest = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Snapshot(msgspec.Struct, frozen=True, array_like=True, tag=17, eq=False):
    """Server: the weights and the optimizer's state before this step; answer with Ready."""

    step: Count
    digest: Digest
    weights: Float32Array
    """The weights [n_parameters]."""
    slots: Annotated[dict[str, Float32Array], Meta(max_length=MAX_SLOTS)]
    """The optimizer's slots by name, each as long as the weights."""
    numbers: Annotated[dict[str, float], Meta(max_length=MAX_SLOTS)]
    """The optimizer's running numbers, by name."""
    zeros: Annotated[dict[str, list[Count]], Meta(max_length=MAX_SLOTS)] = msgspec.field(default_factory=dict)
    """The numbers of the tensors that are left out of a slot, by its name, since it has nothing but zeros there."""

    is_start: bool = False
    """Whether the weights are the slot "start", too, which is left out."""

    def condensed(self, layout: ParameterLayout) -> "Snapshot":
        """The same without first weights that are the present ones, and without the zeros of tensors that a slot says
        nothing of, such as the second moments of matrices that take Muon's steps."""
        slots, zeros = dict(self.slots), dict[str, list[Count]]()
        is_start = START in slots and np.array_equal(slots[START].view(np.uint32), self.weights.view(np.uint32))
        if is_start:
            del slots[START]
        for name, slot in list(slots.items()):
            parts = [part.reshape(-1) for part in layout.split(slot).values()]
            is_kept = [bool(part.view(np.uint32).any()) for part in parts]  # minus zero is kept, too
            if not all(is_kept):
                zeros[name] = [number for number, kept in enumerate(is_kept) if not kept]
                slots[name] = np.concatenate([slot[:0], *(parts[n] for n, kept in enumerate(is_kept) if kept)])
        return msgspec.structs.replace(self, slots=slots, zeros=zeros, is_start=is_start)

    def check(self, layout: ParameterLayout) -> None:
        """Checks that the arrays are those of this layout.

        Raises:
            ValueError: they are not.
        """
        for name, idle in self.zeros.items():
            if name not in self.slots or not {*idle} <= {*range(len(layout.tensors))}:
                raise ValueError(f"zeros: expected numbers of tensors by a slot's name, got {idle[:9]} of {name!r}")
        for name, array in (("weights", self.weights), *self.slots.items()):
            left_out = {*self.zeros.get(name, ())}
            length = sum(tensor.size for number, tensor in enumerate(layout.tensors) if number not in left_out)
            if array.shape != (length,) or array.dtype != np.float32:
                without = f" and {len(left_out)} tensors of zeros" if left_out else ""
                raise ValueError(
                    f"{name}: expected float32 [{length}]{without}, got {array.dtype} {list(array.shape)}; "
                    "was the checkpoint made for another model?"
                )

    def whole_slots(self, layout: ParameterLayout) -> dict[str, Float32Array]:
        """Copies of the slots, with what was left out.

        Raises:
            ValueError: the snapshot is of another layout.
        """
        self.check(layout)
        whole = {name: slot.copy() for name, slot in self.slots.items() if name not in self.zeros}
        if self.is_start:
            whole[START] = self.weights.copy()
        for name, idle in self.zeros.items():
            whole[name], first, left_out = np.zeros(layout.size, dtype=np.float32), 0, {*idle}
            for number, part in enumerate(layout.split(whole[name]).values()):
                if number not in left_out:
                    part.reshape(-1)[:] = self.slots[name][first : first + part.size]
                    first += part.size
        return whole
