"""A vocabulary in shards: the head of a language model, and its embedding, cut by rows.

A graph that ends in the cross-entropy of a linear layer becomes one in which each shard of the layer's rows has calls
of its own, so that the graph can be cut between them. Beside its input, a shard hands on two numbers for each token:
the log-sum-exp of its logits and those of the shards before, and the logit of the next token if it is a row of one of
these. The loss follows from the numbers of the last shard.

Source: Megatron-LM's parallel embedding and cross-entropy, arXiv 1909.08053, section 3.
"""

import re
from collections.abc import Sequence
from typing import final

from msgspec import Struct
from msgspec.structs import replace

from fedlearn.graphs.checks import values_read
from fedlearn.graphs.graph import Argument, ArraySpec, Call, Dtype, DtypeName, Form, Graph, GraphError, Value

_CROSS_ENTROPY = "cross_entropy_loss.default"
_LINEAR = "linear.default"
_EMBEDDING = "embedding.default"
_SAME_ROWS = ("reshape.default", "contiguous.default")
"""Calls that may stand between the layer and its loss, as long as they keep the logits of a token together."""

_REDUCTIONS = ("none", "mean", "sum")
_FLOAT32: DtypeName = "float32"
NOISE_ROWS = 128
"""The number of rows at multiples of which shards begin, so that their noise is made as fast as a whole tensor's."""

_SHARD = re.compile(r"(.*)\[(\d+):(\d+)\]")


class Rows(Struct, frozen=True):
    """Some rows of a tensor, or all of them."""

    tensor: str
    first: int = 0
    end: int = 0
    """The last row plus 1; 0 means all rows."""

    @property
    def name(self) -> str:
        """The name of the shard, such as `head.weight[0:100]`."""
        return f"{self.tensor}[{self.first}:{self.end}]" if self.end else self.tensor

    @property
    def count(self) -> int:
        return self.end - self.first


def rows_of(name: str) -> Rows:
    """The rows that the name of a learned tensor stands for: those of a shard, or all."""
    matched = _SHARD.fullmatch(name)
    return Rows(matched[1], int(matched[2]), int(matched[3])) if matched is not None else Rows(name)


def sharded(graph: Graph, n_shards: int) -> Graph:
    """The same loss with head and embedding in `n_shards` shards of nearly equal size; 1 leaves the graph as it is.

    Raises:
        GraphError: the graph does not end in the cross-entropy of a linear layer, or the layer has too few rows.
    """
    if n_shards == 1:
        return graph
    head = _Head.of(graph)
    size = head.weight.shape[0]
    if size < 2 * n_shards:
        raise GraphError(f"shards: expected at most {size // 2} of a vocabulary of {size}, got {n_shards}")
    unit = NOISE_ROWS if size >= 2 * n_shards * NOISE_ROWS else 1
    bounds = [size // unit * number // n_shards * unit for number in range(n_shards)]
    return _Writer(graph, head, list(zip(bounds, [*bounds[1:], size], strict=True))).written()


class _Head(Struct, frozen=True):
    """The calls from a linear layer to its cross-entropy."""

    linear: Call
    between: tuple[Call, ...]
    loss: Call
    weight: ArraySpec
    bias: ArraySpec | None

    @classmethod
    def of(cls, graph: Graph) -> "_Head":
        made_by = {name: call for call in graph.calls for name in call.results}
        learned = {array.name: array for array in graph.learned}
        found = [call for call in graph.calls if call.operator == _CROSS_ENTROPY]
        if len(found) != 1:
            raise _refusal(f"got {len(found)} of cross-entropy")
        (loss,) = found
        if loss.arguments[2] is not None or loss.arguments[5] != 0:
            raise _refusal("got one with weights of classes or smoothed labels")
        between: list[Call] = []
        call = made_by.get(_name(loss.arguments[0]))
        while call is not None and call.operator in _SAME_ROWS:
            between.append(call)
            call = made_by.get(_name(call.arguments[0]))
        weight = learned.get(_name(call.arguments[1])) if call is not None and call.operator == _LINEAR else None
        if call is None or weight is None:
            raise _refusal(f"got one of the results of {call.operator if call is not None else 'no call'}")
        bias = learned.get(_name(call.arguments[2])) if call.arguments[2] is not None else None
        if call.arguments[2] is not None and bias is None:
            raise _refusal("got one with a bias that is not learned")
        head = cls(call, tuple(reversed(between)), loss, weight, bias)
        head._check_readers(graph)
        return head

    def _check_readers(self, graph: Graph) -> None:
        """Checks that no other call reads the layer, its rows or its logits, all of which it would need."""
        own = {self.linear.results[0], *(call.results[0] for call in self.between)}
        allowed = {id(self.linear), id(self.loss), *map(id, self.between)}
        names = {self.weight.name, *own, *([self.bias.name] if self.bias is not None else [])}
        for call in graph.calls:
            is_embedding = call.operator == _EMBEDDING and _name(call.arguments[0]) == self.weight.name
            if id(call) not in allowed and not is_embedding and not names.isdisjoint(values_read(call)):
                raise _refusal(f"got one whose layer or logits {call.operator} reads, too")
        if not own.isdisjoint(graph.outputs):
            raise _refusal("got one whose logits are what the graph gives")


def _refusal(got: str) -> GraphError:
    return GraphError(
        f"shards: expected a loss that is the mean cross-entropy of a linear layer, {got}; leave shards out"
    )


@final
class _Writer:
    """A writer of the calls of the new graph, each with the form of its result."""

    def __init__(self, graph: Graph, head: _Head, spans: Sequence[tuple[int, int]]) -> None:
        self._graph, self._head, self._spans = graph, head, spans
        results = graph.results
        if len(graph.forms) != len(results):
            raise GraphError("graph: expected the forms of its results, got none; export it again to cut it")
        self._forms = dict(zip(results, graph.forms, strict=True))
        self._forms.update((array.name, Form(array.shape, array.dtype)) for array in graph.given)
        self._calls: list[Call] = []
        self._new_forms: list[Form] = []

    def written(self) -> Graph:
        head, graph = self._head, self._graph
        replaced = {id(head.linear), *map(id, head.between)}
        for call in graph.calls:
            if id(call) in replaced:
                continue
            if call is head.loss:
                self._write_loss(call)
            elif call.operator == _EMBEDDING and _name(call.arguments[0]) == head.weight.name:
                self._write_embedding(call)
            else:
                self._calls.append(call)
                self._new_forms += [self._forms[name] for name in call.results]
        cut = {head.weight.name, head.bias.name if head.bias is not None else ""}
        learned = [
            piece for array in graph.learned for piece in (self._pieces(array) if array.name in cut else [array])
        ]
        return replace(graph, learned=tuple(learned), calls=tuple(self._calls), forms=tuple(self._new_forms))

    def _pieces(self, array: ArraySpec) -> list[ArraySpec]:
        return [
            replace(array, name=Rows(array.name, first, end).name, shape=(end - first, *array.shape[1:]))
            for first, end in self._spans
        ]

    def _call(
        self, result: str, operator: str, *arguments: Argument, shape: Sequence[int], dtype: DtypeName = _FLOAT32
    ) -> Value:
        form = Form(tuple(shape), dtype)
        self._calls.append(Call((result,), operator, arguments))
        self._new_forms.append(form)
        self._forms[result] = form
        return Value(result)

    def _own(self, prefix: str, indices: Value, first: int, end: int) -> tuple[Value, Value]:
        """Whether each index is a row of the shard, and its row in the shard; any row where it is not one."""
        shape = self._forms[indices.name].shape
        dtype = self._forms[indices.name].dtype
        above = self._call(f"{prefix}.above", "ge.Scalar", indices, first, shape=shape, dtype="bool")
        below = self._call(f"{prefix}.below", "lt.Scalar", indices, end, shape=shape, dtype="bool")
        own = self._call(f"{prefix}.own", "logical_and.default", above, below, shape=shape, dtype="bool")
        row = self._call(f"{prefix}.row", "sub.Scalar", indices, first, 1, shape=shape, dtype=dtype)
        return own, self._call(f"{prefix}.at", "clamp.default", row, 0, end - first - 1, shape=shape, dtype=dtype)

    def _write_embedding(self, call: Call) -> None:
        """Writes the embedding as a sum over shards, each of which has zeros for tokens of other shards."""
        result, indices = call.results[0], Value(_name(call.arguments[1]))
        shape = self._forms[result].shape
        total: Value | None = None
        for number, (first, end) in enumerate(self._spans):
            prefix = f"{result}.shard{number}"
            own, at = self._own(prefix, indices, first, end)
            weight = Value(Rows(self._head.weight.name, first, end).name)
            rows = self._call(f"{prefix}.rows", _EMBEDDING, weight, at, shape=shape)
            mask = self._call(f"{prefix}.mask", "unsqueeze.default", own, -1, shape=(*shape[:-1], 1), dtype="bool")
            is_last = number == len(self._spans) - 1
            name = result if is_last and total is None else f"{prefix}.kept"
            kept = self._call(name, "where.ScalarOther", mask, rows, 0.0, shape=shape)
            if total is not None:
                kept = self._call(result if is_last else f"{prefix}.sum", "add.Tensor", total, kept, 1, shape=shape)
            total = kept

    def _write_loss(self, call: Call) -> None:
        result, targets = call.results[0], Value(_name(call.arguments[1]))
        tokens = self._forms[targets.name].shape
        whole: Value | None = None
        picked: Value | None = None
        for number, (first, end) in enumerate(self._spans):
            prefix = f"{result}.shard{number}"
            logits = self._write_logits(prefix, first, end)
            sums = self._call(f"{prefix}.sums", "logsumexp.default", logits, (-1,), False, shape=tokens)
            own, at = self._own(prefix, targets, first, end)
            dtype = self._forms[targets.name].dtype
            index = self._call(f"{prefix}.index", "unsqueeze.default", at, -1, shape=(*tokens, 1), dtype=dtype)
            found = self._call(f"{prefix}.found", "gather.default", logits, -1, index, shape=(*tokens, 1))
            flat = self._call(f"{prefix}.flat", "squeeze.dim", found, -1, shape=tokens)
            logit = self._call(f"{prefix}.logit", "where.ScalarOther", own, flat, 0.0, shape=tokens)
            if whole is not None and picked is not None:
                both = self._call(f"{prefix}.both", "stack.default", (whole, sums), -1, shape=(*tokens, 2))
                sums = self._call(f"{prefix}.whole", "logsumexp.default", both, (-1,), False, shape=tokens)
                logit = self._call(f"{prefix}.picked", "add.Tensor", picked, logit, 1, shape=tokens)
            whole, picked = sums, logit
        assert whole is not None, "shards without rows"
        assert picked is not None
        losses = self._call(f"{result}.losses", "sub.Tensor", whole, picked, 1, shape=tokens)
        self._reduce(call, losses, targets, tokens)

    def _write_logits(self, prefix: str, first: int, end: int) -> Value:
        head = self._head
        weight = Value(Rows(head.weight.name, first, end).name)
        bias = Value(Rows(head.bias.name, first, end).name) if head.bias is not None else None
        shape = self._forms[head.linear.results[0]].shape[:-1]
        given = Value(_name(head.linear.arguments[0]))
        logits = self._call(f"{prefix}.logits", _LINEAR, given, weight, bias, shape=(*shape, end - first))
        for place, call in enumerate(head.between):
            before = self._forms[call.results[0]].shape
            if before[-1] != head.weight.shape[0]:
                raise _refusal(f"got one whose logits lie in {list(before)}")
            shape = (*before[:-1], end - first)
            arguments: tuple[Argument, ...] = (logits,) if call.operator == "contiguous.default" else (logits, shape)
            logits = self._call(f"{prefix}.logits{place}", call.operator, *arguments, shape=shape)
        if self._forms[logits.name].shape[:-1] != self._forms[_name(head.loss.arguments[1])].shape:
            raise _refusal("got one whose logits of a token do not lie together")
        return logits

    def _reduce(self, call: Call, losses: Value, targets: Value, tokens: Sequence[int]) -> None:
        """Writes the mean or sum of the losses over the tokens that count."""
        result, ignored = call.results[0], call.arguments[4]
        reduction = _REDUCTIONS[int(str(call.arguments[3]))]
        counts = self._call(f"{result}.counts", "ne.Scalar", targets, ignored, shape=tokens, dtype="bool")
        is_mean = reduction == "mean"
        name = result if reduction == "none" else f"{result}.counted"
        counted = self._call(name, "where.ScalarOther", counts, losses, 0.0, shape=tokens)
        if reduction == "none":
            return
        total = self._call(f"{result}.total" if is_mean else result, "sum.default", counted, None, shape=())
        if is_mean:
            numbers = self._call(f"{result}.numbers", "to.dtype", counts, Dtype(_FLOAT32), shape=tokens)
            n_tokens = self._call(f"{result}.n_tokens", "sum.default", numbers, None, shape=())
            self._call(result, "div.Tensor", total, n_tokens, shape=())


def _name(argument: Argument) -> str:
    return argument.name if isinstance(argument, Value) else ""
