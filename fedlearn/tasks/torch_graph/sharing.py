"""Encodes a task as the bytes that travel in an Invitation, and decodes it."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.graphs import codec
from fedlearn.graphs.checks import DEFAULT_LIMITS, Limits
from fedlearn.graphs.graph import Graph, GraphError
from fedlearn.tasks.blocks import MAX_BLOCK_BYTES, decode_arrays, encode_block
from fedlearn.tasks.limits import MEMBERS_AT_LEAST, UNBOUNDED
from fedlearn.tasks.task import Task, layout_of


class Attachment(msgspec.Struct, frozen=True, array_like=True):
    """All data that make the task of a graph."""

    graph: bytes
    frozen: bytes
    """Arrays that are not trained, as safetensors bytes; empty if there are none."""
    scales: dict[str, float]
    reads: dict[str, str]
    hidden: dict[str, int] = {}


def share(task: Task, module: Any, loss: Any, rows: Any, learned: Any) -> bytes:  # noqa: ANN401 (torch's)
    """The bytes of a task; `module`, `loss`, `rows` and `learned` are the arguments of `export`.

    Raises:
        GraphError: the loss can't be exported, or the task is too large to be sent to everyone who joins.
    """
    from fedlearn.tasks.torch_graph.export.export import export

    exported = export(module, loss, rows, learned)
    frozen = {name: np.ascontiguousarray(array) for name, array in exported.frozen.items()}
    n_bytes = sum(array.nbytes for array in frozen.values())
    if n_bytes > MAX_BLOCK_BYTES:
        raise GraphError(
            f"graph: expected at most {MAX_BLOCK_BYTES} bytes of tensors that are not trained, got {n_bytes}; "
            "let volunteers name the task's file (--share nothing)"
        )
    attachment = Attachment(
        codec.encode(exported.graph),
        encode_block(frozen) if frozen else b"",
        dict(task.scales),
        dict(task.reads),
        dict(task.hidden),
    )
    return msgspec.msgpack.encode(attachment)


def received(attachment: bytes, max_bytes: int = UNBOUNDED, *, start: Mapping[str, Float32Array] | None = None) -> Task:
    """The task that was shared, for a machine with `max_bytes` of memory for it; `start` are the initial weights, for
    who knows them.

    Raises:
        GraphError: the bytes are no task, or its graph may not be run.
    """
    from fedlearn.tasks.torch_graph.graph_task import GraphTask

    given = unpacked(attachment)
    return GraphTask(
        given.graph,
        given.frozen,
        start=start,
        scales=given.scales,
        reads=given.reads,
        hidden=given.hidden,
        limits=limits_of(max_bytes),
    )


class Shared(msgspec.Struct, frozen=True, eq=False):
    """The unchecked contents of a shared task."""

    graph: Graph
    frozen: Mapping[str, NDArray[Any]]
    scales: Mapping[str, float]
    reads: Mapping[str, str]
    hidden: Mapping[str, int]

    @property
    def layout(self) -> ParameterLayout:
        """The layout of the tensors in the flat weights."""
        shapes = {array.name: array.shape for array in self.graph.learned}
        return layout_of(shapes, self.scales, self.reads, self.hidden)


def unpacked(attachment: bytes) -> Shared:
    """The unchecked contents of a shared task, decoded from its bytes.

    Raises:
        GraphError: the bytes are no task.
    """
    try:
        given = msgspec.msgpack.decode(attachment, type=Attachment)
        frozen = decode_arrays(given.frozen) if given.frozen else {}
    except (msgspec.MsgspecError, ValueError) as error:
        raise GraphError(f"graph: expected a graph with its tensors, got something else: {error}") from error
    return Shared(codec.decode(given.graph), frozen, given.scales, given.reads, given.hidden)


def limits_of(max_bytes: int) -> Limits:
    """The limits of a graph on a machine with `max_bytes` of memory for it."""
    return Limits(max_bytes=min(max_bytes // MEMBERS_AT_LEAST, DEFAULT_LIMITS.max_bytes))
