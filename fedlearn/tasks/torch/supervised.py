"""Supervised learning: a module, examples, and a loss of the module on some of them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.blocks import Columns, n_rows
from fedlearn.tasks.signatures import check_takes
from fedlearn.tasks.task import ROWS_BY_LOSSES, Batch, LossGradients, Members, Setting
from fedlearn.tasks.torch.columns import as_columns, warn_of_gaps
from fedlearn.tasks.torch.dropout import PortableDraws
from fedlearn.tasks.torch.gradients import called
from fedlearn.tasks.torch.members.members import TorchMembers
from fedlearn.tasks.torch.members.refusals import refuse_module, refuse_several
from fedlearn.tasks.torch.module_task import Model, ModuleTask, Train
from fedlearn.tasks.torch.seeds import seeded
from fedlearn.tasks.torch.training_mode import ENOUGH_ROWS, buffers_taken_back, judging, learning
from fedlearn.tasks.torch.trees import as_tensors

Rows = dict[str, Tensor]
"""Some rows of each column, [rows, ...]."""
Judge = Callable[[nn.Module, Rows], Tensor | float]
"""A function that gives a number for a module on rows of data."""

BATCH_SIZE = 32
"""Rows of a group by gradients."""

N_ELSEWHERE = 64
"""Groups of rows, from all over the data, that are asked whether they read a parameter that the first one does not."""

HELD_OUT_SHARE = 10
"""One row in this many is held out, if metrics are wanted and no held-out rows are given."""


@final
class Supervised(ModuleTask):
    """The task that `supervised` makes."""

    kind: ClassVar[str] = "supervised"

    def __init__(
        self,
        model: Model,
        loss: Judge,
        data: Columns,
        *,
        held_out: Columns,
        batch_size: int | None,
        train: Train,
        metrics: Mapping[str, Judge],
        scales: Mapping[str, float] | None,
        reads: Mapping[str, str] | None,
        settings: Mapping[str, Setting] | None,
    ) -> None:
        super().__init__(model, train=train, scales=scales, settings=settings)
        self.data, self.held_out, self.reads = data, held_out, reads or {}
        self.batch_size = BATCH_SIZE if batch_size is None else batch_size
        self.batch_size_by_losses = ROWS_BY_LOSSES if batch_size is None else 0
        self._own_loss, self._metrics = loss, metrics
        self._moves_buffers: bool | None = None
        """Whether a loss changes buffers of the module; None before the first one."""
        self._may_draw_again = True
        """Whether something may be drawn on the way back of a gradient, where none of the loss's own modes is left."""
        self._trained = wraps(loss)(_with_portable_draws(self._loss))

    def _loss(self, model: nn.Module, rows: Rows) -> Tensor | float:
        """The loss, of which nothing stays behind in buffers, so that none depends on those before it."""
        if self._moves_buffers is False:
            found = self._own_loss(model, rows)
        else:
            with buffers_taken_back(model) as have_changed:
                found = self._own_loss(model, rows)
                if self._moves_buffers is None:
                    self._moves_buffers = have_changed()
        refuse_several(found)
        return found

    def losses(self, members: Members, batch: Batch) -> Float32Array:
        assert isinstance(members, TorchMembers)
        with self.computing(), learning(self.model):
            losses = members(partial(self._trained, self.model), dict(batch.rows), seeds=batch.seeds)
        if not isinstance(losses, Tensor) or losses.dim() != 1:
            given = (
                f"a tensor of shape {tuple(losses.shape[1:])}" if isinstance(losses, Tensor) else type(losses).__name__
            )
            raise ValueError(f"the loss: expected one number, got {given}; take its mean")
        return np.asarray(losses.cpu(), dtype=np.float32)

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        # A checkpoint that computes again what drops something must drop the same.
        with learning(self.model), PortableDraws() if self._may_draw_again else nullcontext() as draws:
            found = self.gradients_of(partial(self._trained, self.model), weights, batch)
        if draws is not None:
            self._may_draw_again = draws.has_drawn
        return found

    def as_graph(self, *, batch_size: int = 0) -> bytes:
        from fedlearn.tasks.torch_graph.sharing import share

        with learning(self.model):
            rows = self._first_rows(batch_size or self.batch_size)
            return share(self, self.model, self._loss, rows, self.parameters)

    def evaluate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:  # noqa: ARG002
        if not self._metrics:
            return {}
        with self.computing():
            self.load(weights)
            rows = as_tensors(dict(self.held_out), self.device)
            with self.judging():
                return {name: _measured(name, metric, self.model, rows) for name, metric in self._metrics.items()}

    @contextmanager
    def judging(self) -> Iterator[None]:
        if self._moves_buffers is None and any(True for _ in self.model.buffers()):
            with learning(self.model), seeded(0, self.device):
                called(self._loss, self.model, self._first_rows(self.batch_size))
        moves = self._moves_buffers is True
        with (
            buffers_taken_back(self.model) if moves else nullcontext(),
            judging(self.model, self._run_on_data, moves=moves),
        ):
            yield

    def _run_on_data(self) -> None:
        """Runs the model on rows from all over the data, in groups as in trials."""
        n_all = n_rows(self.data)
        n_groups = max(min(ENOUGH_ROWS, n_all) // self.batch_size, 1)
        numbers = np.arange(n_groups * self.batch_size) * n_all // (n_groups * self.batch_size)
        for some in np.random.default_rng(0).permutation(numbers).reshape(n_groups, -1):
            called(self._own_loss, self.model, self._rows(some))

    def _first_rows(self, n: int) -> Rows:
        """The first rows of the data, from the beginning again where there are fewer than so many."""
        return self._rows(np.arange(n) % n_rows(self.data))

    def _rows(self, numbers: NDArray[np.int64]) -> Rows:
        """The rows of the data with these numbers."""
        found: Rows = as_tensors({name: column[numbers] for name, column in self.data.items()}, self.device)
        return found

    def _elsewhere(self) -> Iterator[tuple[Rows]]:
        size = N_ELSEWHERE, self.batch_size_by_losses or self.batch_size
        for numbers in np.random.default_rng(0).integers(n_rows(self.data), size=size):
            yield (self._rows(numbers),)

    def _prepare(self, model: nn.Module) -> None:
        refuse_module(model, may_train=True)


def _measured(name: str, metric: Judge, model: nn.Module, rows: Rows) -> float:
    """A metric of the model; one may differentiate, such as by where a field is measured.

    Raises:
        ValueError: it fails.
    """
    try:
        found = called(metric, model, rows)
        return float(found.detach() if isinstance(found, Tensor) else found)
    except Exception as error:
        raise ValueError(f"metrics: expected a number of {name!r}, got {type(error).__name__}: {error}") from error


def _with_portable_draws(loss: Judge) -> Judge:
    """The loss, with draws that are the same on every machine if its first call makes any."""
    may_draw = True

    def judge(model: nn.Module, rows: Rows) -> Tensor | float:
        nonlocal may_draw
        if not may_draw:
            return loss(model, rows)
        with PortableDraws() as draws:
            found = loss(model, rows)
        may_draw = draws.has_drawn
        return found

    return judge


def supervised(
    model: Model,
    loss: Judge,
    data: Mapping[str, ArrayLike],
    *,
    held_out: Mapping[str, ArrayLike] | None = None,
    batch_size: int | None = None,
    train: Train = None,
    metrics: Mapping[str, Judge] | None = None,
    scales: Mapping[str, float] | None = None,
    reads: Mapping[str, str] | None = None,
    settings: Mapping[str, Setting] | None = None,
) -> Supervised:
    """A task that trains a PyTorch module on examples, by any loss.

    `loss(model, rows)` gives one number, lower is better, and needs no gradient; `rows` are `batch_size` rows of each
    column of `data`, by default 32 in runs by gradients and 8 in runs by losses. Columns are arrays or tensors of one
    length, in a dictionary, a data frame or a data set of Hugging Face; float64 and bfloat16 are kept as float32, and
    integers come as int64. `metrics` are functions like the loss, measured for
    the unperturbed model on held-out rows: those of `held_out`, or the last tenth of the data. `train` names the
    parameters to train: a predicate on names, or parts of names; without it all with `requires_grad`. `scales`, `reads`
    and `settings` are those of `fedlearn.Task`.

    Raises:
        ValueError: columns hold no numbers or differ in length, there are none, `batch_size` is less than 1, `held_out`
            has other columns than `data`, or the loss or a metric takes other arguments.
    """
    if callable(data) and not callable(loss):
        raise ValueError("loss, data: expected supervised(model, loss, data), got them the other way round; swap them")
    if batch_size is not None and (not isinstance(batch_size, int | np.integer) or batch_size < 1):
        raise ValueError(f"batch_size: expected 1 or more, got {batch_size!r}; give a whole number")
    _check_named(metrics or {})
    for what, judge in {"loss": loss, **(metrics or {})}.items():
        check_takes(what, judge, "model", "rows")
    columns = as_columns(data, "data")
    warn_of_gaps(columns, "data")
    if held_out is not None:
        held = as_columns(held_out, "held_out")
        warn_of_gaps(held, "held_out")
        if held.keys() != columns.keys():
            raise ValueError(f"held_out: expected the columns {sorted(columns)} of data, got {sorted(held)}")
    else:
        n_rows = len(next(iter(columns.values())))
        kept = n_rows - n_rows // HELD_OUT_SHARE if metrics else n_rows
        held = {name: column[kept:] for name, column in columns.items()}
        columns = {name: column[:kept] for name, column in columns.items()}
    return Supervised(
        model,
        loss,
        columns,
        held_out=held,
        batch_size=batch_size,
        train=train,
        metrics=metrics or {},
        scales=scales,
        reads=reads,
        settings=settings,
    )


def _check_named(metrics: object) -> None:
    """Refuses metrics that have no names."""
    if isinstance(metrics, Mapping):
        return
    name = getattr(metrics, "__name__", "")
    example = name if name.isidentifier() else "accuracy"
    raise ValueError(
        f"metrics: expected functions by name, got {type(metrics).__name__}; name them, such as "
        f"{{{example!r}: {example}}}"
    )
