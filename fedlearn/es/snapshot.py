"""A replica as a value, which checkpoints hold and which is sent to those who join."""

from typing import Annotated

import msgspec
from msgspec import Meta

from fedlearn.es.digest import DIGEST_BYTES
from fedlearn.es.layout import Float32Array

MAX_SLOTS = 8
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
